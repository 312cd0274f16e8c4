// SPDX-License-Identifier: Apache-2.0

#include "cli/run/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/open_file.h"
#include "base/time.h"

namespace ringmaster::cli {
namespace {

std::string WallClock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, now.tv_nsec / 1'000'000);
}

}  // namespace

double MonotonicSeconds() { return ToSeconds(Now().time_since_epoch()); }

Result<std::unique_ptr<EventLog>> EventLog::Open(const std::string& path) {
  Fd file = OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (!file.valid()) return ErrnoError("open " + path, errno);
  RM_TRY(EndTornLine(file, path));
  return std::unique_ptr<EventLog>(new EventLog(std::move(file), path));
}

void EventLog::Write(RunEvent event) {
  event.time = WallClock();
  event.monotonic_seconds = MonotonicSeconds();
  const std::string line = EventLineText(event) + "\n";
  MutexLock lock(mutex_);
  const std::string text = (torn_ ? "\n" : "") + line;
  const Status written = WriteAll(file_, path_, std::as_bytes(std::span(text)));
  torn_ = !written.ok();
  if (torn_)
    log::Warn("dropped an event reason={} message={}: {}", event.reason, event.message,
              written.error().message);
}

}  // namespace ringmaster::cli
