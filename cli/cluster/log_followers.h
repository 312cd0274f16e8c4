// SPDX-License-Identifier: Apache-2.0

// Follows the logs of the workers of a job. Nothing is polled: the API server sends what is written. A log
// that ends while its container may still run is requested again, and lines that were read before are
// skipped.
//
// Not thread-safe: one thread calls it. `changed` is called on any thread when Update has something to read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/worker_log.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

class LogFollowers {
 public:
  static constexpr size_t kMaxLogs = 64;      // each is a connection from the API server to a node
  static constexpr int64_t kLogLines = 5000;  // of a log that are read at first
  // Of the first log: with a line about progress every five seconds at least, more than 20 hours.
  static constexpr int64_t kHistoryLines = 15'000;

  struct Pod {
    std::string name;
    std::string container;
    bool started = false;  // its container runs, or has run
    bool runs = false;
  };
  static Pod PodOf(const Json& pod);

  // REQUIRES: `cluster` outlives the followers.
  LogFollowers(Cluster& cluster, std::string space, std::function<void()> changed);
  ~LogFollowers();
  LogFollowers(const LogFollowers&) = delete;
  LogFollowers& operator=(const LogFollowers&) = delete;

  // Reads what has arrived. `pods`: all that exist now. What was read of the log of a pod that is gone stays.
  void Update(const std::vector<Pod>& pods);
  // Forgets everything: the job is another one.
  void Clear() { logs_.clear(); }

  WorkerLogs logs() const;
  // Returns the progress that was read since the last call.
  std::vector<LogStep> TakeSteps();
  // Returns the end of the log of a worker, or the lines up to a failure of which the operator learned at
  // that time. Errors: kNotFound with the reason; `hint` is where else to look.
  Result<std::string> Tail(const std::string& pod, std::optional<kube::WallTime> failure,
                           const std::string& hint) const;

 private:
  class Follower;

  Cluster& cluster_;
  const std::string space_;
  const std::function<void()> changed_;
  std::map<std::string, std::unique_ptr<Follower>> logs_;  // by pod
};

}  // namespace ringmaster::cli
