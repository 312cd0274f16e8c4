// SPDX-License-Identifier: Apache-2.0

// Sends events about jobs to the API server (events.k8s.io/v1), counted and held back by an EventCorrelator.
// Best effort: a failed write is logged and forgotten; nothing waits for it.
//
// Note may be called from any thread. One thread of its own.
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
    std::string instance;             // who reports: the pod's name
    std::function<bool()> may_write;  // only the leader speaks
    EventCorrelator::Options correlator;
  };

  // `api` must outlive the recorder.
  EventRecorder(ApiClient& api, Options options);
  ~EventRecorder();  // sends what is noted already, without waiting for answers
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void Note(const EventSubject& subject, bool warning, const std::string& reason, const std::string& note);
  // Left out so far, because one job made too many. Any thread.
  int64_t dropped() const;

 private:
  class Shared;
  void Run();

  ApiClient& api_;
  const Options options_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// The object of one event as the API wants it; `now` is RFC 3339 with microseconds. Texts are cut to the
// API's limits.
Json ToEvent(const CreateEvent& event, const std::string& instance, const std::string& now);

}  // namespace ringmaster::kube
