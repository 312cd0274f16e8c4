// SPDX-License-Identifier: Apache-2.0

#include "cli/run/inbox.h"

#include <sys/eventfd.h>

#include <utility>

#include "base/check.h"
#include "cli/run/event_log.h"

namespace ringmaster::cli {

Inbox::Inbox() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(wake_.valid()); }

void Inbox::PutProgress(const rendezvous::Progress& progress) {
  const double now = MonotonicSeconds();
  MutexLock lock(mutex_);
  content_.progress.push_back({progress, now});
  Wake();
}

void Inbox::PutLine(const rendezvous::EventLine& line) {
  MutexLock lock(mutex_);
  content_.coordinator_lines.push_back(line);
  Wake();
}

void Inbox::PutNote(Content::Note note) {
  MutexLock lock(mutex_);
  content_.notes.push_back(std::move(note));
  Wake();
}

void Inbox::PutBusyTimes(const rendezvous::GangBusyTimes& times) {
  MutexLock lock(mutex_);
  content_.busy_times.push_back(times);
  Wake();
}

void Inbox::PutReport(const rendezvous::Report& report) {
  MutexLock lock(mutex_);
  content_.report = report;
  Wake();
}

void Inbox::Wake() { ::eventfd_write(wake_.get(), 1); }

Inbox::Content Inbox::Take() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  MutexLock lock(mutex_);
  return std::exchange(content_, Content{});
}

}  // namespace ringmaster::cli
