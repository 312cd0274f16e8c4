// SPDX-License-Identifier: Apache-2.0

// World: the true state of the simulated cluster. An API server without faults (revisions, preconditions,
// quota, garbage collection), nodes with a scheduler and kubelets (world_nodes.cc), and a model of the
// programs in the pods (gang_model.h). Uses virtual time, deterministic by seed, not thread-safe. Start
// reading here; SimBackend puts the faulty network in front of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "operator/control/backend.h"
#include "tests/sim/controller/faults.h"
#include "tests/sim/controller/kueue_model.h"
#include "tests/sim/controller/scheduler.h"

namespace ringmaster::sim {

// The program of a pod.
struct Behaviour {
  std::optional<Duration> ends_after;  // after it started; unset: it runs until it is stopped
  int32_t exit_code = 0;
  std::string message;
  bool ignores_sigterm = false;
};

struct PodTruth {
  core::Pod pod;
  uint64_t number = 0;  // in creation order
  Behaviour behaviour;
  std::vector<std::string> excluded_nodes;
  std::vector<std::string> avoided_nodes;
  std::string domain;              // only nodes of this one; empty: any
  std::optional<Time> image_from;  // when its image becomes available
  bool silent = false;
  bool stuck = false;  // its node does not end it: only force removes it
  bool joined = false;
  bool orphaned = false;  // it has no owner reference
};

struct NodeTruth {
  int32_t pod_capacity = 1;  // the number of pods that fit
  std::string domain{};      // the value of its topology label; empty: it has none
  std::optional<Time> lost_since;
  std::optional<Time> reported_since;  // when the API server reported it lost, some time later
  std::optional<Time> restarted;       // when it started again the last time
  bool cordoned = false;               // it takes no more pods
};

enum class EndedBy : uint8_t {
  kItself,
  kEviction,
  kNode,  // the node started again
};

struct GangState {
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t checkpoint_step = 0;
  std::vector<std::string> members;  // uids
  rendezvous::Report report;
  std::optional<core::SetGang> order;
  uint64_t order_term = 0;     // of the leader that sent the order
  int64_t newest_attempt = 0;  // the newest attempt that made a step
};

// What happens to the pods of a deleted job.
enum class Cascade : uint8_t {
  kForeground,  // the job stays until they are gone
  kBackground,
  kOrphan,  // they lose their owner reference and run on
};

struct JobTruth {
  core::Job job;
  core::Status status;
  control::Revision revision = 0;
  uint64_t status_term = 0;  // of the leader that wrote the status last
  Time status_at{};
  std::map<std::string, PodTruth> pods;    // by name
  std::map<std::string, PodTruth> strays;  // of earlier jobs of this name
  std::string queue;                       // of Kueue; empty: none
  Time queue_changed{};
  bool gone = false;                          // the job does not exist, only its strays do
  std::optional<core::PrepareGang> support;   // the supporting objects that were created last
  bool support_complete = false;              // none of them is missing
  std::optional<Time> support_missing_since;  // while there are pods
  GangState gang;
  Duration foreign_work{0};  // done by the pods of `foreign_attempt`
  int64_t foreign_attempt = 0;
  std::set<int32_t> foreign_done;  // ranks that have done their part in this attempt
};

class World {
 public:
  // The number of a leader. Agents connect to the leader with the highest one.
  using Term = uint64_t;

  struct Options {
    uint64_t seed = 1;
    Faults faults;
    std::function<Behaviour(const core::Pod&)> behaviour;  // default: runs until it is stopped
    bool models = true;  // run nodes, scheduler, gang and framework models; otherwise every pod has room
    core::GangProvider provider = core::GangProvider::kNone;
    std::vector<int32_t> pod_capacities;  // of each node
    std::vector<std::string> domains;     // of each node; no items: without topology
    bool accepts_any_term = false;        // planted bug: orders of deposed leaders reach the agents
  };
  // Observers of the true state: the backend, which carries changes to the view, and the checker.
  struct Observer {
    std::function<void(const control::Key&)> job_changed;
    std::function<void(const control::Key&, const std::string& pod)> pod_changed;
    std::function<void(const control::Key&)> report_changed;
    std::function<void(const control::Key&)> support_changed;
    std::function<void(const std::string& node)> node_changed;
    std::function<void(const control::Key&)> workload_changed;
    std::function<void()> default_queue_changed;
    // Called before the quota of the Workload is given to others.
    std::function<void(const control::Key&, const WorkloadTruth&)> quota_freed;
    std::function<void(const control::Key&, const core::ReleaseGang&)>
        released;  // before the release is applied
  };

  World(Scheduler& scheduler, Options options);

  void Observe(Observer observer) { observers_.push_back(std::move(observer)); }
  const std::map<control::Key, JobTruth>& jobs() const { return jobs_; }
  const JobTruth* Find(const control::Key& key) const;
  // The pods that earlier jobs of this name have left behind, by name.
  const std::map<std::string, PodTruth>& StraysOf(const control::Key& key) const;
  // The Workloads of jobs of this name, also of earlier ones.
  const std::vector<WorkloadTruth>& WorkloadsOf(const control::Key& key) const;
  std::vector<control::Key> WorkloadKeys() const;
  const std::map<std::string, NodeTruth>& nodes() const { return nodes_; }
  // The nodes that a pod keeps off, also when it is gone.
  std::vector<std::string> ExcludedOfPod(const std::string& uid) const {
    const auto known = pod_excluded_.find(uid);
    return known == pod_excluded_.end() ? std::vector<std::string>() : known->second;
  }
  // The domain that a pod was created for, also when it is gone; empty: none.
  std::string DomainOfPod(const std::string& uid) const {
    const auto known = pod_domains_.find(uid);
    return known == pod_domains_.end() ? "" : known->second;
  }
  core::GangProvider provider() const { return options_.provider; }
  control::Revision revision(control::Kind kind) const { return revisions_[static_cast<size_t>(kind)]; }
  bool faulty() const { return scheduler_.elapsed() < options_.faults.until; }
  Time nodes_changed_at() const { return nodes_changed_at_; }

  // Actions of users. Submit assigns `job.uid`.
  void Submit(const control::Key& key, core::Job job, int64_t total_steps, std::string queue = {});
  void SetQueue(const control::Key& key, std::string queue);
  // Whether the namespace has a LocalQueue `default`.
  void SetDefaultQueue(bool exists);
  bool default_queue() const { return default_queue_; }
  Time default_queue_changed() const { return default_queue_changed_; }
  // Kueue admits all pods of the job's Workloads now.
  void AdmitWorkloads(const control::Key& key);
  void Change(const control::Key& key, const std::function<void(core::Job&)>& change);
  void Delete(const control::Key& key, Cascade cascade = Cascade::kForeground);
  void DeleteNamespace();
  void DeletePodByHand(const control::Key& key, const std::string& name);
  void DamageSupport(const control::Key& key);
  void TakeName(const control::Key& key, const std::string& pod) { foreign_.insert({key, pod}); }
  void SetQuota(std::optional<int32_t> pods) { quota_ = pods; }

  // The API server: applies a write at once and always answers. `term`: of the leader that sent it.
  Result<control::Revision> Apply(const control::Write& write, Term term);
  // A leader has started: agents connect to its coordinator, the former one is gone.
  void SetTerm(Term term);
  Term term() const { return term_; }
  Time term_since() const { return term_since_; }
  // Whether the write being applied comes from a leader that was replaced.
  bool deposed() const { return acting_term_ < term_; }
  Term acting_term() const { return acting_term_; }

  void EndPod(const control::Key& key, const std::string& uid, int32_t exit_code, const std::string& message,
              EndedBy by = EndedBy::kItself);
  // The agent exits with 0 by an order, `finished`: because the work of the job is done.
  void EndAgent(const control::Key& key, const std::string& uid, bool finished);

 private:
  friend class GangModel;

  void Tick();
  void Calm();
  void BreakPods(const control::Key& key, JobTruth& job);
  void CollectEnded(const control::Key& key, JobTruth& job);
  void BreakNodes();
  // Lets the nodes of the domain take no more pods for a while.
  void Cordon(const std::string& domain);
  void FailPeers(const control::Key& key, const JobTruth& job, const std::string& node);
  void ReportNodeLost(const std::string& name, std::optional<Time> lost_since);
  void ReturnNode(const std::string& name);
  void SilenceNodes();
  void HearNode(const std::string& name);
  void RestartNode(const std::string& name, Time lost_since);
  void Schedule();
  void Bind(const control::Key& key, PodTruth& pod, const std::string& node);
  bool Unreachable(const PodTruth& pod) const;
  void StartPod(const control::Key& key, const std::string& uid);
  std::optional<Error> RefusesPods(const std::string& what);
  Result<control::Revision> CreatePod(const control::Key& key, JobTruth& job, const core::CreatePod& action);
  Result<control::Revision> DeletePod(const control::Key& key, JobTruth& job, const core::DeletePod& action);
  Result<control::Revision> Prepare(const control::Key& key, JobTruth& job, const core::PrepareGang& action);
  Result<control::Revision> Release(const control::Key& key, JobTruth& job, const core::ReleaseGang& action);
  Result<control::Revision> MakeWorkload(const control::Key& key, JobTruth& job,
                                         const core::MakeWorkload& action);
  Result<control::Revision> ResizeWorkload(const control::Key& key, const core::ResizeWorkload& action);
  Result<control::Revision> SetWorkloadStatus(const control::Key& key, const core::SetWorkloadStatus& action);
  Result<control::Revision> DeleteWorkload(const control::Key& key, const core::DeleteWorkload& action);
  Result<control::Revision> ReleaseWorkload(const control::Key& key, const core::ReleaseWorkload& action);
  Result<WorkloadTruth*> FindWorkload(const control::Key& key, const std::string& name,
                                      const std::string& uid);
  control::Revision Touch(const control::Key& key, core::Workload& workload);
  control::Revision WorkloadChanged(const control::Key& key);
  void RemoveWorkloads(const control::Key& key);
  void CollectWorkloads(const control::Key& key, const std::string& owner_uid, bool orphaned);
  bool OwnsWorkload(const control::Key& key, const std::string& job_uid) const;
  void TickKueue();
  // Kueue finishes the slices that were replaced, some time later.
  void FinishReplaced(const control::Key& key, std::vector<WorkloadTruth>& workloads);
  bool HasLocalQueue(const std::string& name) const;
  Result<control::Revision> Order(const control::Key& key, JobTruth& job, const core::SetGang& action);
  void Terminate(const control::Key& key, PodTruth& pod, Duration grace);
  Result<control::Revision> UntrackPod(const control::Key& key, const core::UntrackPod& action);
  // The pod is to be deleted without a grace period: the finalizer may still hold it.
  void EndDeletion(const control::Key& key, PodTruth& pod);
  void RequestDeletion(const control::Key& key, PodTruth& pod);
  void LeaveBehind(const control::Key& key, bool orphaned);
  void RemoveOrphans(const control::Key& key, const std::vector<std::string>& names);
  void RemovePod(const control::Key& key, std::string name);
  void Collect(const control::Key& key);
  PodTruth* FindPod(const control::Key& key, const std::string& uid);
  template <class F>
  void ForEachPod(F f) {
    for (auto& [key, job] : jobs_)
      for (auto* pods : {&job.pods, &job.strays})
        for (auto& [name, pod] : *pods) f(key, pod);
  }
  control::Revision JobChanged(const control::Key& key);
  control::Revision PodChanged(const control::Key& key, const std::string& name);
  void SupportChanged(const control::Key& key);
  void NodeChanged(const std::string& name);
  void ReportChanged(const control::Key& key);
  Duration Random(Duration most);

  Scheduler& scheduler_;
  Options options_;
  SplitMix64 rng_;
  std::map<control::Key, JobTruth> jobs_;
  std::map<std::string, NodeTruth> nodes_;
  std::map<std::string, std::vector<std::string>> pod_excluded_;  // by uid
  std::map<std::string, std::string> pod_domains_;                // by uid
  SplitMix64 cordons_;  // separate, so that seeds keep what they draw otherwise
  Time nodes_changed_at_ = Scheduler::kStart;
  SplitMix64 outages_;     // of the scheduler; separate, so that seeds keep what they draw otherwise
  SplitMix64 unheard_;     // nodes that the API server does not hear, although they run; separate, too
  Time scheduler_back_{};  // it does not run before
  std::set<std::pair<control::Key, std::string>> foreign_;  // pod names that other owners have
  std::optional<int32_t> quota_;
  Time namespace_ending_until_{};
  Term term_ = 0;
  Time term_since_{};
  Term acting_term_ = 0;
  bool calmed_ = false;
  std::vector<Observer> observers_;
  control::Revision revisions_[control::kKinds] = {};
  KueueModel kueue_;
  bool default_queue_ = false;
  Time default_queue_changed_{};
  std::map<control::Key, std::vector<WorkloadTruth>> workloads_;
  uint64_t next_uid_ = 1;
};

}  // namespace ringmaster::sim
