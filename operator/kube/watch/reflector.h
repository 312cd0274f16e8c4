// SPDX-License-Identifier: Apache-2.0

// Keeps sinks (stores) up to date with collections of the API server: lists and watches them, and starts over
// when necessary (watcher.h decides). One thread serves all collections; events are read, decoded and stored
// on the transport's threads.
//
//   Reflectors reflectors(client); reflectors.Add({.resource = kPods}, store); reflectors.Start();
//
// Thread-safe, except that the transport's threads and the reflectors' thread must not call Stop. REQUIRES:
// sinks live until Stop returns; they are not called after that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "operator/kube/api_client.h"
#include "operator/kube/watch/sink.h"
#include "operator/kube/watch/watcher.h"

namespace ringmaster::kube {

struct Collection {
  Resource resource;
  std::string namespace_;  // empty: all
  std::string label_selector;
  std::string field_selector{};
  bool metadata_only = false;
  bool optional = false;  // it is not among Problems: nothing waits for it
  // Called for each failure, for logs and metrics, on the thread that found it.
  std::function<void(const Error&)> on_failure;
};

class Reflectors {
 public:
  // The thread calls `housekeeping` after Wake and at the time that its last call returned.
  explicit Reflectors(ApiClient& client, Watcher::Options options = {},
                      std::function<Time(Time now)> housekeeping = nullptr);
  ~Reflectors();
  Reflectors(const Reflectors&) = delete;
  Reflectors& operator=(const Reflectors&) = delete;

  void Add(Collection collection, ReflectorSink& sink);
  // Stops following the collections of this resource: their sinks are not called any more.
  void Retire(const Resource& resource);
  void Start();
  void Stop();
  // Lists all collections again.
  void ListAgain();
  // Makes the thread run a turn now.
  void Wake();

  // Why collections are not up to date, one sentence each, for /readyz; empty: all are. A namespace whose
  // collections the API server denies is no problem for the others, as long as it does not deny all of them.
  std::vector<std::string> Problems() const;
  // The namespaces in which the API server denies a collection.
  std::set<std::string> Denied() const;

 private:
  class Signal;
  class Member;

  std::vector<std::shared_ptr<Member>> Members() const;
  void CloseRetired();

  ApiClient& client_;
  const Watcher::Options options_;
  const std::function<Time(Time)> housekeeping_;
  const std::shared_ptr<Signal> signal_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Member>> members_ RM_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ringmaster::kube
