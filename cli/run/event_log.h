// SPDX-License-Identifier: Apache-2.0

// DIR/events.jsonl: what happened to the run, for people and for tests. One line per event:
// {"time":"2026-...Z","monotonicSeconds":12.345,"type":"Normal|Warning","reason":"WorkerKilled","message":"..."}
//
// monotonicSeconds is CLOCK_MONOTONIC, comparable with other processes of this machine. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::cli {

class EventLog {
 public:
  static Result<std::unique_ptr<EventLog>> Open(const std::string& path);  // appends

  void Normal(std::string_view reason, std::string_view message) { Write("Normal", reason, message); }
  void Warning(std::string_view reason, std::string_view message) { Write("Warning", reason, message); }

 private:
  explicit EventLog(Fd file) : file_(std::move(file)) {}
  // A full disk does not stop training because of its log: such an event is dropped.
  void Write(std::string_view type, std::string_view reason, std::string_view message);

  std::mutex mutex_;
  Fd file_;
};

// CLOCK_MONOTONIC in seconds.
double MonotonicSeconds();

}  // namespace ringmaster::cli
