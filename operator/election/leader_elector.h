// SPDX-License-Identifier: Apache-2.0

// Holds a Lease of the API server for this process, or waits for it: an LeaseStateMachine, one thread, and
// real requests.
//
// The callbacks run on the keeper's thread. `on_elected` comes at most once, `on_lost` at most once after it;
// after that the process should end (elector.h E2). MayWrite and the other readers may be called from any
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "operator/election/lease_state_machine.h"
#include "operator/kube/api_client.h"

namespace ringmaster::election {

// The Lease object, as the API has it. `acquired` and `renewed` are RFC 3339 with microseconds; an empty
// holder is left out, as the API wants it.
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

  // `api` must outlive the keeper.
  LeaderElector(kube::ApiClient& api, Options options);
  ~LeaderElector();  // as Stop
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  void Start();
  // Hands the Lease over, when it is ours, and waits for that a moment. Not from a callback.
  void Stop();

  // Whether a write begun now ends before the Lease can be anybody else's, as far as our clock can tell.
  bool MayWrite() const {
    return Now().time_since_epoch().count() < leadership_ends_.load(std::memory_order_acquire);
  }
  // The holder last seen; empty: nobody.
  std::string holder() const;
  // Whether the API server answered us about the Lease within the last `age`.
  bool AnsweredWithin(Duration age) const;

 private:
  class Mailbox;

  void Run();
  void Send(const LeaseStateMachine::Action& action);
  void HandleAnswer(const LeaseStateMachine::Action& action, const Result<Json>& answer);
  void PublishState(Time now);

  kube::ApiClient& api_;
  const Options options_;
  LeaseStateMachine machine_;  // of the thread
  std::string acquired_;
  bool elected_ = false;
  std::shared_ptr<Mailbox> mailbox_;  // shared with answers that may come after us
  std::atomic<int64_t> leadership_ends_{INT64_MIN};
  std::atomic<int64_t> last_answer_{INT64_MIN};
  mutable std::mutex mutex_;
  std::string holder_;
  std::thread thread_;
};

}  // namespace ringmaster::election
