// SPDX-License-Identifier: Apache-2.0

#include "cli/run/progress_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/history/step_history.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

constexpr auto kScreenInterval = milliseconds(100);
constexpr auto kPlainInterval = seconds(1);

double Eta(const ProgressState& s) {
  return static_cast<double>(std::max<int64_t>(0, s.total_steps - s.step)) * s.seconds_per_step;
}

std::string Numbers(const ProgressState& s) {
  // Programs of users may report steps, and how many there will be.
  std::string text = s.total_steps > 0 ? fmt::format("step {}/{}  ", s.step, s.total_steps)
                     : s.step > 0      ? fmt::format("step {}  ", s.step)
                                       : "";
  if (s.step > 0) text += fmt::format("loss {:.4f}  ", s.loss);
  if (s.samples_per_second > 0) text += fmt::format("{:.0f} samples/s  ", s.samples_per_second);
  text += fmt::format("workers {}/{}", s.workers_alive, s.workers_wanted);
  if (s.seconds_per_step > 0 && s.total_steps > 0) text += "  ETA " + FormatEta(Eta(s));
  return text;
}

}  // namespace

Result<ProgressStyle> ParseProgressStyle(const std::string& text, bool is_screen) {
  if (text == "auto") return is_screen ? ProgressStyle::kBar : ProgressStyle::kPlain;
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

LiveScreen ScreenOf(const ProgressState& s, const LossHistory& losses) {
  LiveScreen screen;
  screen.title = s.title;
  screen.step = s.step;
  screen.total_steps = s.total_steps;
  if (s.step > 0) screen.loss = fmt::format("{:.4f}", s.loss);
  screen.losses = losses.values();
  if (s.samples_per_second > 0) screen.numbers = fmt::format("{:.0f} samples/s", s.samples_per_second);
  if (s.seconds_per_step > 0)
    screen.numbers += (screen.numbers.empty() ? "ETA " : "  ETA ") + FormatEta(Eta(s));
  screen.workers_alive = s.workers_alive;
  screen.workers_wanted = s.workers_wanted;
  screen.note = s.note;
  screen.workers = s.workers;
  return screen;
}

std::string FormatPlain(const ProgressState& s) { return Numbers(s) + (s.note.empty() ? "" : "  " + s.note); }

void ProgressDisplay::Step(const rendezvous::StepRecord& record, double monotonic_seconds) {
  losses_.Add(record.loss);
  if (style_ != ProgressStyle::kJson) return;
  std::string line = FullStepLine(record);
  line.pop_back();
  Print(stdout, "{},\"monotonicSeconds\":{:.6f}}}\n", line, monotonic_seconds);
  std::fflush(stdout);
}

void ProgressDisplay::Update(const ProgressState& state, Time now) {
  if (style_ == ProgressStyle::kBar || FormatPlain(state) != FormatPlain(state_)) dirty_ = true;
  state_ = state;
  if (!dirty_ || now < next_draw_) return;
  next_draw_ = now + (style_ == ProgressStyle::kBar ? Duration(kScreenInterval) : Duration(kPlainInterval));
  Draw();
}

void ProgressDisplay::Draw() {
  dirty_ = false;
  if (style_ == ProgressStyle::kBar) {
    const TerminalTraits traits = StdoutTraits();
    std::vector<std::string> lines =
        DrawScreen(ScreenOf(state_, losses_), traits, std::max(3, traits.height - 2));
    if (painter_.shown() && lines == painted_) return;
    painter_.Paint(lines);
    painted_ = std::move(lines);
  } else if (style_ == ProgressStyle::kPlain) {
    Print(stdout, "{}\n", FormatPlain(state_));
  }
  std::fflush(stdout);
}

void ProgressDisplay::Say(std::string_view line) {
  if (style_ == ProgressStyle::kJson) return;
  dirty_ = dirty_ || painter_.shown();
  painter_.Say(line);
}

void ProgressDisplay::Finish() {
  if (dirty_) Draw();
  painter_.Finish();
}

}  // namespace ringmaster::cli
