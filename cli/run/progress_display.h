// SPDX-License-Identifier: Apache-2.0

// The progress output of a run: a small screen that is redrawn in place on a terminal
// (cli/plot/live_screen.h), at most one line per second in a pipe, or the metrics lines for scripts. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cli/plot/live_screen.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

enum class ProgressStyle : uint8_t { kBar, kPlain, kJson };

// "auto" means bar when stdout is a screen (cli/plot/terminal.h), plain otherwise.
Result<ProgressStyle> ParseProgressStyle(const std::string& text, bool is_screen);

struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double samples_per_second = 0;
  double seconds_per_step = 0;
  int workers_alive = 0;
  int workers_wanted = 0;
  std::string note;   // "waiting for workers", "writing checkpoint 300"
  std::string title;  // name of the job
  std::vector<LiveScreen::Worker> workers;
};

// "1:02:03", "2:05", "0:09".
std::string FormatEta(double seconds);

LiveScreen ScreenOf(const ProgressState& state, const LossHistory& losses);
std::string FormatPlain(const ProgressState& state);

class ProgressDisplay {
 public:
  // Writes to stdout.
  explicit ProgressDisplay(ProgressStyle style) : style_(style) {}

  ProgressStyle style() const { return style_; }

  // Reports a committed step. REQUIRES: steps increase. `monotonic_seconds` is the time of receipt; the json
  // style adds it to the line.
  void Step(const rendezvous::StepRecord& record, double monotonic_seconds);

  // Sets the current state. Draws it at most 10 times per second (screen) or once per second (plain).
  void Update(const ProgressState& state, Time now);

  // Prints a line above the screen ("worker gpt-1-2 was killed by --chaos"). Does nothing in the json style.
  void Say(std::string_view line);

  // Draws the last state and ends the line.
  void Finish();

 private:
  void Draw();

  const ProgressStyle style_;
  LossHistory losses_;
  ScreenPainter painter_;
  std::vector<std::string> painted_;  // the newest screen
  ProgressState state_;
  Time next_draw_{};
  bool dirty_ = false;
};

}  // namespace ringmaster::cli
