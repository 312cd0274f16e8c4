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
  EventLog(Fd file, std::string path) : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  Mutex mutex_;                              // serializes writes
  bool torn_ RM_GUARDED_BY(mutex_) = false;  // the last line may lack its end
  Fd file_ RM_GUARDED_BY(mutex_);
};

// Returns CLOCK_MONOTONIC in seconds.
double MonotonicSeconds();

}  // namespace ringmaster::cli
