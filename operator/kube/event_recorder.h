// SPDX-License-Identifier: Apache-2.0

// Sends events about jobs to the API server (events.k8s.io/v1), correlated and limited by an EventCorrelator.
// Best effort: a failed write is logged and dropped, and nothing waits for a write.
//
// Thread-safe. Runs one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "operator/kube/api_client.h"
#include "operator/kube/event_correlator.h"

namespace ringmaster::kube {

class EventRecorder {
 public:
  struct Options {
    std::string instance;             // the event's reportingInstance: the pod's name
    std::function<bool()> may_write;  // only the leader sends events
    EventCorrelator::Options correlator;
  };

  // REQUIRES: `api` outlives the recorder.
  EventRecorder(ApiClient& api, Options options);
  ~EventRecorder();  // sends what has been recorded, without waiting for responses
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void Record(const EventSubject& subject, bool warning, const std::string& reason, const std::string& note);
  // The number of events dropped because a job caused too many.
  int64_t dropped() const;

 private:
  class Queue;
  void Run();

  ApiClient& api_;
  const Options options_;
  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

// The event object of the API; `now` is RFC 3339 with microseconds. Truncates texts to the API's limits.
Json ToEvent(const CreateEvent& event, const std::string& instance, const std::string& now);

}  // namespace ringmaster::kube
