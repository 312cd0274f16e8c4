// SPDX-License-Identifier: Apache-2.0

// SimBackend: the faulty network between the controller and a World. Changes reach the view late, each kind
// in a separate stream; requests and replies are lost or late; status writes conflict without a reason; the
// process's wall clock is wrong. With Faults::None() it is prompt and reliable. A SimBackend is one process
// of the controller, with a term; after Restart it is another process. Not thread-safe; uses virtual time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "operator/control/backend.h"
#include "operator/core/capacity/capacity.h"
#include "operator/core/planner/room_planner.h"
#include "tests/sim/controller/world.h"

namespace ringmaster::sim {

// How all pods of a gang got their places.
struct Placing {
  core::RoomQueue::Standing standing;
  std::string head;                       // of the queue
  std::map<std::string, int32_t> rooms;   // before that, in each domain; empty without a preferred topology
  std::map<std::string, int32_t> free;    // before that, on each node, with what is claimed for others
  std::map<std::string, int32_t> left;    // the same after it
  std::map<std::string, int32_t> places;  // in each domain; nodes without the label are in the empty one
};

class SimBackend final : public control::Backend {
 public:
  struct Options {
    uint64_t seed = 1;
    std::map<control::Key, int32_t> priorities;  // of jobs in the queue for room; 0 for others
    std::map<control::Key, int64_t> ages;  // of jobs in that queue, the smaller, the older; 0 for others
    bool must_try = false;                 // whether pods are admitted is asked before they exist
    // Planted bugs, which the simulator must find.
    bool scatters = false;        // a preferred topology is ignored when places are reserved
    bool forgets_domain = false;  // pods may use other domains than those of their places
    bool forgets_ages = false;    // leaders after the first one do not know which job is older
    // Called when all pods of a gang got places.
    std::function<void(const control::Key&, const Placing&)> on_reserved;
  };

  SimBackend(World& world, Scheduler& scheduler, const Faults& faults, Options options);

  std::optional<control::Snapshot> Observe(const control::Key& key) const override;
  std::optional<control::Snapshot> TakeTurn(const control::Key& key) override;
  control::Revision Seen(control::Kind kind, const control::Key& key) const override;
  std::vector<control::Key> Keys() const override;
  void Execute(control::Write write, std::function<void(Result<control::Revision>)> done) override;
  void ReadThrough(const control::Key& key, std::function<void(Status)> done) override;
  void Record(const control::Key&, const core::Event&) override {}
  void Subscribe(std::function<void(const control::Key&)> changed) override;

  // Becomes a new process that leads in this term: lists all objects again and forgets its subscribers.
  void Restart(World::Term term);
  // Ends the process. Requests that it sent still arrive.
  void Kill();
  // Sets how far its wall clock is ahead of the world's.
  void SetClock(Duration ahead) { clock_ = ahead; }

 private:
  struct JobPart {
    core::Job job;
    core::Status status;
    control::Revision revision = 0;
    std::string queue;
  };
  struct Cached {
    std::optional<JobPart> job;
    std::map<std::string, core::Pod> pods;
    std::map<std::string, std::string> owners;  // uids of jobs, by uid of the pod
    // The revisions of the last live read. Older watch events are outdated.
    control::Revision floor[control::kKinds] = {};
    std::vector<WorkloadTruth> workloads;
    std::optional<core::PrepareGang> support;
    uint64_t support_version = 0;
    int64_t tried_attempt = 0;  // its pods would be admitted; 0: not known of any
    std::optional<core::SetGang> order;
    core::RoomQueue::Standing standing;  // when its room was looked for the last time
  };
  enum Stream : size_t { kJobs, kPods, kSupport, kNodes, kWorkloads, kDefaultQueue, kStreams };

  // What Observe returns but for the room; nullptr: there is none to look for.
  std::optional<control::Snapshot> Read(const control::Key& key, const Cached*& looks) const;
  void OnJob(const control::Key& key);
  void OnPod(const control::Key& key, const std::string& name);
  void OnSupport(const control::Key& key);
  void OnWorkloads(const control::Key& key);
  void OnDefaultQueue();
  void ReadQuota(const Cached& cached, core::Observed& observed) const;
  // Whether the job is in a queue of Kueue, or has quota of an earlier one.
  static bool HasQueue(const Cached& cached);
  // The pod as the API shows it, with the uid of its job. nullopt: it is gone, or no job owns it.
  using OwnedPod = std::pair<core::Pod, std::string>;
  std::optional<OwnedPod> PodNow(const control::Key& key, const std::string& name) const;
  void OnNode(const std::string& name);
  void Deliver(Stream stream, std::function<void()> what);
  void LearnPod(const control::Key& key, Cached& cached, core::Pod pod);
  void ForgetPod(const control::Key& key, Cached& cached, const std::string& name);
  // Reports the job to the planner.
  void LearnJob(const control::Key& key, const Cached& cached);
  core::RoomPlanner::Gang GangToPlace(const control::Key& key, const Cached& cached,
                                      const core::Observed& begun) const;
  Result<control::Revision> Reserve(const control::Write& write, const core::ReserveRoom& action);
  static constexpr const char* kPlace = "place";  // every pod takes one; nodes have some
  static constexpr const char* kRack = "rack";    // the label of the domains
  // The name of a pod in the capacity.
  static std::string PodId(const control::Key& key, const std::string& name) {
    return key.namespace_ + "/" + name;
  }
  // The shape of a pod of this job. `domain`: only nodes of this one; empty: any.
  core::Capacity::Shape ShapeOf(const core::Job& job, const std::vector<std::string>& excluded,
                                const std::string& domain = {}) const;
  // The ranks by the domain of their pods: those that exist may use only the domain that they have.
  std::vector<core::RoomPlanner::Alike> ByDomain(const control::Key& key, const Cached& cached,
                                                 int64_t attempt, const std::vector<int32_t>& ranks,
                                                 const std::vector<std::string>& excluded) const;
  std::vector<std::string> PeersOf(const control::Key& key, const Cached& cached, int64_t attempt) const;
  std::vector<core::BoundToDomain> BoundOf(const control::Key& key, const Cached& cached, int64_t attempt,
                                           const std::vector<std::string>& excluded) const;
  // The domain of the pod's reserved place, if the job has a topology.
  std::string DomainOf(const control::Key& key, const core::Job& job, const std::string& pod) const;
  // The free room of each node; what is claimed for another gang is not free.
  std::map<std::string, int32_t> RoomByNode();
  // The room for pods of the job in each domain.
  std::map<std::string, int32_t> RoomsOf(const core::Job& job, const std::vector<std::string>& excluded);
  void LearnNode(const std::string& name, const NodeTruth& node);
  void ReadNow(const control::Key& key);
  void Send(control::Write write, Duration there, Duration back, bool lost_reply,
            std::function<void(Result<control::Revision>)> done);
  void Acknowledge(const control::Write& write, const Result<control::Revision>& result, uint64_t version);
  void Notify(const control::Key& key);
  void NotifyWaiting();
  // Decides who makes room for the head of the queue, a moment later.
  void PlanSoon();
  void PlanPreemptions();
  std::optional<core::RoomHolder> HolderOf(const control::Key& key) const;
  int32_t PriorityOf(const control::Key& key) const;
  int64_t AgeOf(const control::Key& key) const;  // core::RoomQueue::Standing::created
  void NotifyOn(const std::string& node);
  Duration Random(Duration most);
  bool Chance(double probability) { return world_.faulty() && rng_.Chance(probability); }
  bool Alive() const { return term_ > 0; }

  World& world_;
  Scheduler& scheduler_;
  const Faults faults_;
  const Options options_;
  SplitMix64 rng_;
  uint64_t process_ = 0;  // increases with Restart; replies to an earlier process are dropped
  World::Term term_ = 0;  // 0: no process
  Duration clock_{0};
  std::map<control::Key, Cached> cache_;
  core::RoomPlanner planner_;
  // By required and preferred key, domain and excluded nodes.
  mutable std::map<std::tuple<std::string, std::string, std::string, std::vector<std::string>>,
                   core::Capacity::Shape>
      shapes_;
  std::set<std::string> not_ready_;                   // nodes
  std::map<std::string, std::optional<Time>> boots_;  // by node: when it started the last time
  std::map<std::string, Time> restarts_;              // by node: when this process observed another start
  bool plan_due_ = false;
  uint64_t support_version_ = 0;
  bool default_queue_ = false;  // the namespace has a LocalQueue `default`
  control::Revision seen_[control::kKinds] = {};
  Time last_delivery_[kStreams];
  std::vector<std::function<void(const control::Key&)>> subscribers_;
};

}  // namespace ringmaster::sim
