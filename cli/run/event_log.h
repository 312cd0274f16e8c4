// SPDX-License-Identifier: Apache-2.0

// DIR/events.jsonl: the events of a run, one JSON object per line:
// {"time":"2026-...Z","monotonicSeconds":12.345,"type":"Normal|Warning","reason":"WorkerKilled","message":"..."}
//
// monotonicSeconds is CLOCK_MONOTONIC, so values of different processes on one machine are comparable.
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"

namespace ringmaster::cli {

class EventLog {
 public:
  // Opens the file for appending, and creates it if needed.
  static Result<std::unique_ptr<EventLog>> Open(const std::string& path);

  void Normal(std::string_view reason, std::string_view message) { Write("Normal", reason, message); }
  void Warning(std::string_view reason, std::string_view message) { Write("Warning", reason, message); }

 private:
  explicit EventLog(Fd file) : file_(std::move(file)) {}
  // Logs and drops an event that cannot be written: a full disk must not stop training because of this file.
  void Write(std::string_view type, std::string_view reason, std::string_view message);

  Mutex mutex_;  // serializes writes
  Fd file_ RM_GUARDED_BY(mutex_);
};

// Returns CLOCK_MONOTONIC in seconds.
double MonotonicSeconds();

}  // namespace ringmaster::cli
