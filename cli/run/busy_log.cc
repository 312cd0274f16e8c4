// SPDX-License-Identifier: Apache-2.0

#include "cli/run/busy_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/open_file.h"
#include "cli/history/busy_history.h"

namespace ringmaster::cli {

Result<std::unique_ptr<BusyLog>> BusyLog::Open(const std::string& path) {
  Fd file = OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (!file.valid()) return ErrnoError("open " + path, errno);
  RM_TRY(EndTornLine(file, path));
  return std::unique_ptr<BusyLog>(new BusyLog(std::move(file), path));
}

void BusyLog::Add(const rendezvous::GangBusyTimes& times, double monotonic_seconds) {
  if (waiting_ && waiting_->generation == times.generation) {
    MergeBusyTimes(times, &*waiting_);
  } else {
    waiting_ = times;
  }
  if (first_step_ < 0) first_step_ = times.step;
  const std::string line = BusyLine(*waiting_, monotonic_seconds, waiting_->generation != written_) + "\n";
  const auto size = static_cast<int64_t>(line.size());
  if (bytes_ + size > kFreeBytes + kBytesPerStep * (times.step - first_step_)) return;
  const std::string text = (torn_ ? "\n" : "") + line;
  const Status written = WriteAll(file_, path_, std::as_bytes(std::span(text)));
  torn_ = !written.ok();
  if (torn_) log::Warn("dropped busy times step={}: {}", times.step, written.error().message);
  bytes_ += size;
  written_ = waiting_->generation;
  waiting_.reset();
}

}  // namespace ringmaster::cli
