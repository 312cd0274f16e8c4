// SPDX-License-Identifier: Apache-2.0

// The small screen that `ringmaster run` and `kubectl ringmaster status --watch` draw while a job trains:
// progress, loss with a sparkline, and a line per worker. Pure functions, except ScreenPainter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/plot/terminal.h"

namespace ringmaster::cli {

struct LiveScreen {
  struct Worker {
    enum class State : uint8_t { kMember, kSlow, kStarting, kFailed };  // kSlow: a member that is a straggler
    std::string name;
    State state = State::kStarting;
    std::string text;  // "rank 2, 3 failures"
  };
  // Marks the member as busy for so long in each step, and as slow: the others wait for it.
  static void ShowBusy(double seconds, bool slow, Worker* worker);

  std::string title;  // "gpt-text  Running"
  int64_t step = 0;
  int64_t total_steps = 0;
  std::string numbers;         // "112 samples/s  ETA 2:05"
  std::string loss;            // "1.9107"; empty: no step yet
  std::vector<double> losses;  // oldest first
  int workers_alive = 0;
  int workers_wanted = 0;
  std::string note;
  std::vector<Worker> workers;
};

// Returns at most `rows` lines of at most traits.width - 1 columns: the last column of a terminal may wrap.
// Workers that do not fit are counted in the last line.
std::vector<std::string> DrawScreen(const LiveScreen& screen, const TerminalTraits& traits, int rows);

// Returns the latest losses, thinned to `count`: the whole history stays visible in a short line.
class LossHistory {
 public:
  void Add(double loss);
  const std::vector<double>& values() const { return values_; }

 private:
  static constexpr size_t kMax = 512;
  std::vector<double> values_;  // each is the mean of `stride_` losses
  size_t stride_ = 1;
  double sum_ = 0;
  size_t count_ = 0;
};

// Draws lines over the lines that it drew before, with escape sequences of every terminal since the VT100.
// Writes to stdout. Not thread-safe.
class ScreenPainter {
 public:
  void Paint(const std::vector<std::string>& lines);
  // Prints a line that stays, above the screen. The screen appears again with the next Paint.
  void Say(std::string_view line);
  // Leaves what is on the screen and begins below it.
  void Finish();
  bool shown() const { return drawn_ > 0; }

 private:
  void Clear();
  size_t drawn_ = 0;  // lines on the screen; the cursor is at the start of the line after them
};

}  // namespace ringmaster::cli
