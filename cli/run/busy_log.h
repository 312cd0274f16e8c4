// SPDX-License-Identifier: Apache-2.0

// Appends to DIR/busy_times.jsonl; cli/history/busy_history.h describes its lines. It joins windows, so that
// the file grows by less than kBytesPerStep for each step, beyond its first kFreeBytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "rendezvous/busy_times.h"

namespace ringmaster::cli {

class BusyLog {
 public:
  static constexpr int64_t kFreeBytes = 1 << 10;
  static constexpr int64_t kBytesPerStep = 6;

  static Result<std::unique_ptr<BusyLog>> Open(const std::string& path);

  // Logs and drops a line that cannot be written: a full disk must not stop training because of this file.
  void Add(const rendezvous::GangBusyTimes& times, double monotonic_seconds);

 private:
  BusyLog(Fd file, std::string path) : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  Fd file_;
  bool torn_ = false;                   // the last line may lack its end
  rendezvous::Generation written_ = 0;  // generation of the last line
  std::optional<rendezvous::GangBusyTimes> waiting_;
  int64_t first_step_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace ringmaster::cli
