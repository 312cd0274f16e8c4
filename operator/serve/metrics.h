// SPDX-License-Identifier: Apache-2.0

// The operator's metrics. They have controller-runtime's names where it has one, so that existing dashboards
// work, else the prefix ringmaster_. Only ringmaster_job_* have job names in labels. A test compares names,
// types and texts with the table in docs/internals/operator.md.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

  // A decision of the controller. result: success | error | requeue_after.
  void Reconciled(const std::string& result, Duration took);
  // A job waited in the queue and was then decided.
  void QueueWaited(Duration waited, Duration worked);
  // A write of the controller failed. action: ActionName; code: CodeName.
  void WriteFailed(const std::string& action, const std::string& code);
  // A response of the API server; code 0: none came.
  void Requested(const std::string& method, int code, Duration took);
  // A request is sent again after a response with this code.
  void RequestRetried(const std::string& method, int code);
  void Leading(const std::string& lease, bool leads);
  // The workers of a job restart; `charged`: the restart counts towards the job's limit.
  void Restarted(bool charged);
  void JobEnded(bool succeeded, const std::string& reason);
  // From the creation of the job to the first committed step.
  void FirstStep(Duration after_creation);
  // Steps that a job has committed, and their samples.
  void Stepped(int64_t steps, int64_t samples);
  // A gang has a new membership. `recovery`: since the loss of a member was noticed; nullopt: none was lost.
  void GenerationFormed(std::optional<Duration> recovery);
  // A member was lost without a plan.
  void WorkerFailed();
  // The busy times of a window (rendezvous/busy_times.h): of the slowest worker, over the median of the gang.
  void StepImbalance(double ratio);
  // The busy time per step of each worker. Others that were set before are removed. REQUIRES: this process
  // runs one job.
  void WorkerBusy(const std::map<std::string, double>& seconds_by_worker);
  // The training loss of the newest step. REQUIRES: this process runs one job.
  void Loss(double loss);

  // Values that are read for each scrape rather than counted.
  struct Gauges {
    int64_t queue_depth = 0;
    int64_t writes_in_flight = 0;
    std::vector<std::pair<std::string, int64_t>> jobs_by_phase;  // every phase
    int64_t pods = 0;
    int64_t gangs_waiting = 0;
    int64_t namespaces_denied = 0;
    std::map<std::string, int64_t> queue_lengths;  // by namespace; one that is not in it has no series
    int64_t workers_connected = 0;
    std::map<std::pair<std::string, std::string>, int64_t> workers_by_gpu;  // by model and driver
    int64_t workers_with_device_fault = 0;
    int64_t stragglers = 0;
    // By namespace and job. A job that is not in it has no series.
    std::map<std::pair<std::string, std::string>, double> samples_per_second;
    std::map<std::pair<std::string, std::string>, double> goodput;  // kept samples per second of wall time
    std::vector<std::pair<std::string, int64_t>> cached_objects;    // by kind
    // Totals since the process started.
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
