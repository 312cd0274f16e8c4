// SPDX-License-Identifier: Apache-2.0

// The operator's numbers, under the names that controller-runtime gave them, so that existing dashboards
// work; our own are ringmaster_*. Labels are bounded: no job names. Counters and histograms may be fed from
// any thread; Text may be called from any thread.
//
// The table of names, types and meanings is docs/internals/operator.md's; a test compares.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::serve {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // One decision of the controller. result: success | error | requeue_after.
  void Reconciled(const std::string& result, Duration took);
  // One job was taken out of the queue and let go.
  void QueueWaited(Duration waited, Duration worked);
  // One answer of the API server; code 0: none came.
  void Requested(const std::string& method, int code, Duration took);
  // One request was sent again after this answer.
  void RequestRetried(const std::string& method, int code);
  void Leading(const std::string& lease, bool leads);
  // A worker set was started anew, and whether the job's budget paid for it.
  void Restarted(bool charged);
  void JobEnded(bool succeeded, const std::string& reason);
  // From the creation of the job to the first committed step.
  void FirstStep(Duration after_creation);

  // Called for each scrape: numbers that are looked up rather than counted.
  struct Gauges {
    int64_t queue_depth = 0;
    int64_t writes_in_flight = 0;
    std::vector<std::pair<std::string, int64_t>> jobs_by_phase;  // of every phase
    int64_t pods = 0;
    int64_t gangs_waiting = 0;
    int64_t workers_connected = 0;
    std::map<std::pair<std::string, std::string>, int64_t> workers_by_gpu;  // by model and driver
    int64_t workers_in_trouble = 0;
    std::vector<std::pair<std::string, int64_t>> cached_objects;  // by kind
    // Totals since the process began; they never fall.
    int64_t queue_adds = 0;
    int64_t queue_retries = 0;
    int64_t events_dropped = 0;
  };
  void SetGauges(std::function<Gauges()> read);

  // The Prometheus text format, process_* included.
  std::string Text() const;

  struct Described {
    std::string name;
    std::string type;
    std::string help;
  };
  std::vector<Described> Describe() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::serve
