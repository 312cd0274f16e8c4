// SPDX-License-Identifier: Apache-2.0

#include "cli/run/progress_display.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/history/step_history.h"

namespace ringmaster::cli {
namespace {

constexpr auto kBarInterval = milliseconds(100);
constexpr auto kPlainInterval = seconds(1);

int TerminalWidth() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

double Eta(const ProgressState& s) {
  return static_cast<double>(std::max<int64_t>(0, s.total_steps - s.step)) * s.seconds_per_step;
}

std::string Numbers(const ProgressState& s) {
  std::string text = fmt::format("step {}/{}", s.step, s.total_steps);
  if (s.step > 0) text += fmt::format("  loss {:.4f}", s.loss);
  if (s.samples_per_second > 0) text += fmt::format("  {:.0f} samples/s", s.samples_per_second);
  text += fmt::format("  workers {}/{}", s.workers_alive, s.workers_wanted);
  if (s.seconds_per_step > 0) text += "  ETA " + FormatEta(Eta(s));
  return text;
}

}  // namespace

Result<ProgressStyle> ParseProgressStyle(const std::string& text, bool is_terminal) {
  if (text == "auto") return is_terminal ? ProgressStyle::kBar : ProgressStyle::kPlain;
  if (text == "bar") return ProgressStyle::kBar;
  if (text == "plain") return ProgressStyle::kPlain;
  if (text == "json") return ProgressStyle::kJson;
  return Error{Code::kInvalid, "--progress " + text + ": expected auto, bar, plain or json"};
}

std::string FormatEta(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 3.6e9)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string FormatBar(const ProgressState& s, int width, bool colour) {
  std::string numbers = Numbers(s);
  if (!s.note.empty()) numbers += "  " + s.note;
  const auto columns =
      static_cast<size_t>(std::max(20, width - 1));  // the last column would wrap on some terminals
  if (numbers.size() > columns) numbers.resize(columns);
  const size_t room = columns - numbers.size();
  if (room < 12) return numbers;
  const size_t cells = std::min<size_t>(room - 3, 40);
  const double share =
      s.total_steps > 0
          ? std::clamp(static_cast<double>(s.step) / static_cast<double>(s.total_steps), 0.0, 1.0)
          : 0;
  const auto full = static_cast<size_t>(share * static_cast<double>(cells));
  const std::string done(full, '=');
  const std::string rest(cells - full, ' ');
  const char* on = colour ? (s.workers_alive < s.workers_wanted ? "\x1b[33m" : "\x1b[32m") : "";
  return fmt::format("[{}{}{}{}] {}", on, done, colour ? "\x1b[0m" : "", rest, numbers);
}

std::string FormatPlain(const ProgressState& s) { return Numbers(s) + (s.note.empty() ? "" : "  " + s.note); }

ProgressDisplay::ProgressDisplay(ProgressStyle style)
    : style_(style), colour_(::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr) {}

void ProgressDisplay::Step(const rendezvous::StepRecord& record, double monotonic_seconds) {
  if (style_ != ProgressStyle::kJson) return;
  std::string line = FullStepLine(record);
  line.pop_back();
  std::printf("%s,\"monotonicSeconds\":%.6f}\n", line.c_str(), monotonic_seconds);
  std::fflush(stdout);
}

void ProgressDisplay::Update(const ProgressState& state, Time now) {
  if (FormatPlain(state) != FormatPlain(state_)) dirty_ = true;
  state_ = state;
  if (!dirty_ || now < next_draw_) return;
  next_draw_ = now + (style_ == ProgressStyle::kBar ? Duration(kBarInterval) : Duration(kPlainInterval));
  Draw();
}

void ProgressDisplay::Draw() {
  dirty_ = false;
  if (style_ == ProgressStyle::kBar) {
    std::printf("\r%s\x1b[K", FormatBar(state_, TerminalWidth(), colour_).c_str());
    bar_shown_ = true;
  } else if (style_ == ProgressStyle::kPlain) {
    std::printf("%s\n", FormatPlain(state_).c_str());
  }
  std::fflush(stdout);
}

void ProgressDisplay::Say(std::string_view line) {
  if (style_ == ProgressStyle::kJson) return;
  std::printf("%s%.*s%s\n", bar_shown_ ? "\r" : "", static_cast<int>(line.size()), line.data(),
              bar_shown_ ? "\x1b[K" : "");
  if (bar_shown_) dirty_ = true;
  std::fflush(stdout);
}

void ProgressDisplay::Finish() {
  if (dirty_) Draw();
  if (bar_shown_) std::printf("\n");
  bar_shown_ = false;
  std::fflush(stdout);
}

}  // namespace ringmaster::cli
