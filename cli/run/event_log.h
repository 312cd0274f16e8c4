// SPDX-License-Identifier: Apache-2.0

// Appends to DIR/events.jsonl; cli/history/run_event.h describes its lines. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"
#include "cli/history/run_event.h"

namespace ringmaster::cli {

class EventLog {
 public:
  // Opens the file for appending, and creates it if needed.
  static Result<std::unique_ptr<EventLog>> Open(const std::string& path);

  // Sets the times of the event and writes it. Logs and drops an event that cannot be written: a full disk
  // must not stop training because of this file.
  void Write(RunEvent event);

 private:
  explicit EventLog(Fd file) : file_(std::move(file)) {}

  Mutex mutex_;  // serializes writes
  Fd file_ RM_GUARDED_BY(mutex_);
};

// Returns CLOCK_MONOTONIC in seconds.
double MonotonicSeconds();

}  // namespace ringmaster::cli
