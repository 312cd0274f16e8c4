// SPDX-License-Identifier: Apache-2.0

// `ringmaster run --metrics-address`: the operator's metrics, for the one job of this process. Counts what
// the run observes anyway. Thread-safe, except Update: main thread only.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/http/server.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "operator/core/job_counts.h"
#include "operator/core/model.h"
#include "operator/serve/metrics.h"
#include "rendezvous/busy_times.h"
#include "rendezvous/event_line.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

// Checks a value of --metrics-address without listening. Metrics are served to every client of this machine,
// so other addresses than the loopback ones are refused.
Status CheckMetricsAddress(const std::string& address);

class MetricsServer {
 public:
  // Errors: kUnavailable when it cannot listen.
  static Result<std::unique_ptr<MetricsServer>> Start(const std::string& address);

  void OnProgress(const rendezvous::Progress& progress);
  void OnBusyTimes(const rendezvous::GangBusyTimes& times);
  void OnEvent(const rendezvous::EventLine& line);
  // Counts what has changed since the last call. `connected`: agents at the rendezvous server.
  void Update(const core::Observed& observed, int64_t connected);

  // "http://127.0.0.1:9400/metrics".
  std::string Url() const;

 private:
  explicit MetricsServer(std::string host) : host_(std::move(host)) {}

  const std::string host_;
  const Time started_ = Now();
  serve::Metrics metrics_;
  Mutex mutex_;
  serve::Metrics::Gauges gauges_ RM_GUARDED_BY(mutex_);
  core::JobCounts counted_;
  std::unique_ptr<http::Server> server_;  // last: its thread reads the others
};

}  // namespace ringmaster::cli
