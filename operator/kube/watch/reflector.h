// SPDX-License-Identifier: Apache-2.0

// Keeps sinks (stores) true to collections of the API server: lists them, watches them, starts over when it
// must (watcher.h decides; this carries it out). One thread for all collections; events are read, decoded and
// stored on the transport's threads.
//
//   Reflectors reflectors(client);
//   reflectors.Add({.resource = kPods}, store);
//   reflectors.Start();
//
// Threads: Stop from any thread but the transport's and this one's own; the rest from any. Sinks must outlive
// Stop, after which they are not called any more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/api_client.h"
#include "operator/kube/watch/sink.h"
#include "operator/kube/watch/watcher.h"

namespace ringmaster::kube {

struct Collection {
  Resource resource;
  std::string namespace_;  // empty: all
  std::string label_selector;
  bool metadata_only = false;
  // Each failure, for logs and metrics: on the thread that found it.
  std::function<void(const Error&)> on_failure;
};

class Reflectors {
 public:
  // `housekeeping` is called on the thread now and then: after Wake, and when the time has come that it
  // returned.
  explicit Reflectors(ApiClient& client, Watcher::Options options = {},
                      std::function<Time(Time now)> housekeeping = nullptr);
  ~Reflectors();
  Reflectors(const Reflectors&) = delete;
  Reflectors& operator=(const Reflectors&) = delete;

  void Add(Collection collection, ReflectorSink& sink);
  void Start();
  void Stop();
  void Wake();

  // Why a collection is not being followed, one sentence each: for /readyz. Empty: all are.
  std::vector<std::string> Problems() const;

 private:
  class Thread;
  class Member;

  std::vector<std::shared_ptr<Member>> Members() const;

  ApiClient& client_;
  const Watcher::Options options_;
  const std::function<Time(Time)> housekeeping_;
  std::shared_ptr<Thread> shared_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Member>> members_;
  std::thread thread_;
};

}  // namespace ringmaster::kube
