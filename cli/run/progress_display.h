// SPDX-License-Identifier: Apache-2.0

// What a person sees while a run goes on. A bar redrawn in place on a terminal, at most one line per second
// in a pipe, or the metrics lines themselves for scripts. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

enum class ProgressStyle : uint8_t { kBar, kPlain, kJson };

// "auto" is the bar when stdout is a terminal, plain otherwise.
Result<ProgressStyle> ParseProgressStyle(const std::string& text, bool is_terminal);

struct ProgressState {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double samples_per_second = 0;
  double seconds_per_step = 0;
  int workers_alive = 0;
  int workers_wanted = 0;
  std::string note;  // "waiting for workers", "writing checkpoint 300"
};

// "1:02:03", "2:05", "0:09".
std::string FormatEta(double seconds);

// One line of at most `width` columns, without a line end.
std::string FormatBar(const ProgressState& state, int width, bool colour);
std::string FormatPlain(const ProgressState& state);

class ProgressDisplay {
 public:
  // Writes to stdout. Colours only on a terminal without NO_COLOR.
  explicit ProgressDisplay(ProgressStyle style);

  // A committed step, in order; `monotonic_seconds` is when it was heard of (json adds it to the line).
  void Step(const rendezvous::StepRecord& record, double monotonic_seconds);

  // The state now; draws when it is time to (bar: 10 times a second, plain: once a second).
  void Update(const ProgressState& state, Time now);

  // A line for people above the bar ("worker gpt-1-2 was killed by --chaos"). Not in json.
  void Say(std::string_view line);

  // Draws the last state and leaves the line.
  void Finish();

 private:
  void Draw();

  const ProgressStyle style_;
  const bool colour_;
  ProgressState state_;
  Time next_draw_{};
  bool dirty_ = false;
  bool bar_shown_ = false;
};

}  // namespace ringmaster::cli
