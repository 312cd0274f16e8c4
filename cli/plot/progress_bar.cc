// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/plot/terminal.h"
#include "cli/write_text.h"

namespace ringmaster::cli {
namespace {

constexpr Duration kRedraw = milliseconds(100);

int StderrColumns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string ProgressBarText(std::string_view title, int percent, Duration elapsed, int columns) {
  const auto whole = std::chrono::duration_cast<seconds>(elapsed).count();
  const std::string time = fmt::format("{}:{:02}", whole / 60, whole % 60);
  if (percent < 0) return CutToColumns(fmt::format("{}  {}", title, time), columns);
  const std::string numbers = fmt::format("{:3} %  {}", percent, time);
  const int room = std::min(30, columns - ColumnsOf(title) - ColumnsOf(numbers) - 5);
  if (room < 8) return CutToColumns(fmt::format("{}  {}", title, numbers), columns);
  const int full = room * std::clamp(percent, 0, 100) / 100;
  return fmt::format("{} [{}{}] {}", title, std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(room - full), '.'), numbers);
}

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), terminal_(IsScreen(STDERR_FILENO)), thread_([this] { Run(); }) {}

ProgressBar::~ProgressBar() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  ended_changed_.NotifyAll();
  thread_.join();
}

void ProgressBar::Run() {
  bool shown = false;
  MutexLock lock(mutex_);
  Time next = began_ + kQuiet;
  while (!ended_) {
    if (ended_changed_.WaitUntil(lock, next) || ended_) continue;
    const Time now = Now();
    if (now < next) continue;
    const int percent = counter_.Percent();
    if (terminal_) {
      std::fprintf(
          stderr, "\r%s\x1b[K",
          TextFor(stderr, ProgressBarText(title_, percent, now - began_, StderrColumns() - 1)).c_str());
    } else if (percent < 0) {
      Print(stderr, "{}: {:.0f} s\n", title_, ToSeconds(now - began_));
    } else {
      Print(stderr, "{}: {} %, {:.0f} s\n", title_, percent, ToSeconds(now - began_));
    }
    std::fflush(stderr);
    shown = true;
    next = now + (terminal_ ? kRedraw : kLineInterval);
  }
  if (shown && terminal_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace ringmaster::cli
