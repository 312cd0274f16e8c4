// SPDX-License-Identifier: Apache-2.0

// Acquires a Lease for this process and keeps it: runs a LeaseStateMachine on one thread against the API
// server.
//
// The callbacks run on that thread. `on_elected` comes at most once, `on_lost` at most once after it; the
// process should exit then (lease_state_machine.h, E2).
//
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/mutex.h"
#include "operator/election/lease_state_machine.h"
#include "operator/kube/api_client.h"

namespace ringmaster::election {

// The Lease object of the API. `acquired` and `renewed` are RFC 3339 with microseconds. An empty holder is
// left out, as the API requires.
Json ToLease(const LeaseRecord& record, const std::string& name, const std::string& acquired,
             const std::string& renewed);
Result<LeaseRecord> FromLease(const Json& lease);

class LeaderElector {
 public:
  struct Options {
    std::string namespace_;
    std::string name;
    LeaseStateMachine::Options lease;
    std::function<void(int64_t term)> on_elected;
    std::function<void()> on_lost;
  };

  // REQUIRES: `api` outlives the elector.
  LeaderElector(kube::ApiClient& api, Options options);
  ~LeaderElector();  // calls Stop
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  void Start();
  // Releases the Lease if this process holds it, and waits up to 3 s for the answer. REQUIRES: not called
  // from a callback.
  void Stop();

  // Returns true if a write that begins now ends before another process can hold the Lease, by our clock.
  bool MayWrite() const {
    return Now().time_since_epoch().count() < leadership_ends_.load(std::memory_order_acquire);
  }
  // The holder last seen; empty: none is known.
  std::string holder() const;
  // Returns true if the API server answered a request about the Lease within the last `age`.
  bool AnsweredWithin(Duration age) const;

 private:
  class Mailbox;

  void Run();
  void Send(const LeaseStateMachine::Action& action);
  void HandleAnswer(const LeaseStateMachine::Action& action, const Result<Json>& answer);
  void PublishState(Time now);

  kube::ApiClient& api_;
  const Options options_;
  // Used by thread_ only.
  LeaseStateMachine machine_;
  std::string acquired_;
  bool elected_ = false;

  const std::shared_ptr<Mailbox>
      mailbox_;  // shared with callbacks of the client, which may outlive the elector
  std::atomic<int64_t> leadership_ends_{INT64_MIN};
  std::atomic<int64_t> last_answer_{INT64_MIN};
  mutable Mutex mutex_;
  std::string holder_ RM_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ringmaster::election
