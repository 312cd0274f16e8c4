// SPDX-License-Identifier: Apache-2.0

// Checker: checks every change of the simulated world and every decision against the invariants of
// operator/core/model.h, and keeps the first breach.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/controller/sim_backend.h"
#include "tests/sim/controller/world.h"

namespace ringmaster::sim {

class Checker {
 public:
  // The exit code that the rules of the simulated jobs do not charge.
  static constexpr int32_t kUnchargedExitCode = 139;
  // The unreachable_node_limit of every job.
  static constexpr Duration kUnreachableLimit = seconds(5);

  Checker(World& world, const Scheduler& scheduler);

  // Skips the checks that depend on wall clocks, since those of this run are wrong at times.
  void ClocksAreWrong() { clocks_are_wrong_ = true; }

  // The priorities of the jobs, and their ages as RoomQueue::Standing::created has them; 0 for others.
  void SetTurns(std::map<control::Key, int32_t> priorities, std::map<control::Key, int64_t> ages) {
    priorities_ = std::move(priorities);
    ages_ = std::move(ages);
  }

  // Checks what must hold at any time, or after a delay. Called once per simulated second. `led`: a leader
  // runs.
  void OnTick(bool led);
  // Checks a decision, and that decisions at one moment come to an end. Called before its commands are
  // carried out.
  void OnDecision(const core::Observed& observed, const core::Decision& decision, Time now);
  // Checks in how many domains a gang with a preferred topology got its places, and whether it was its turn.
  void OnReserved(const control::Key& key, const Placing& placing);
  // Checks that the job is at rest. Called at the end of the run.
  void OnEnd(const control::Key& key, bool settled);

  const std::optional<std::string>& breach() const { return breach_; }

 private:
  struct Shadow {
    std::string job_uid;
    core::Ledger ledger;
    std::map<std::string, core::Pod> pods;
    std::set<std::string> ever_counted;
    std::set<std::string> ever_unreachable;
    bool disturbed = false;      // a worker of this attempt failed, was deleted or was cut off
    int64_t newest_attempt = 0;  // the newest attempt that made a step
    std::map<std::string, Time> stranded_since;  // pods that wait for their domain, though others have room
    std::optional<Time> needless_since;          // the job is preempted, and the other one does not wait
    Time spec_changed{};
    int64_t spec_generation = 0;
  };

  // A gang that waits for room before it can run.
  struct Waiting {
    std::string job_uid;
    int32_t pods = 0;     // that need room
    bool simple = false;  // it has no pods, and any node will do that is not excluded
    std::vector<std::string> excluded;
    std::optional<Time> since;       // without a change of nodes or of its spec; only of a simple one
    std::optional<Time> fits_since;  // the same, with room for its pods
  };

  void OnJob(const control::Key& key);
  void OnPod(const control::Key& key, const std::string& name);
  void CheckLedger(const JobTruth& job, Shadow& shadow);
  void CheckDomain(const JobTruth& job, const core::Pod& pod);
  void CheckStranded(const JobTruth& job, Shadow& shadow, bool led);
  void CheckPreemption(const control::Key& key, const JobTruth& job, const Shadow& shadow);
  // Whether the preemption has lasted too long although the other job does not wait.
  bool Outlasts(const control::Key& key, const JobTruth& job);
  int32_t PriorityOf(const control::Key& key) const;
  int64_t AgeOf(const control::Key& key) const;
  void NoteWaiting(const core::Observed& observed, const core::Decision& decision, Time now);
  void WatchWaiting();
  bool Waits(const control::Key& key, const Waiting& waiting) const;
  bool HeldByQuota(const control::Key& key, const JobTruth& job) const;
  // The job with its true Workloads, without pods.
  core::Observed WithQuota(const control::Key& key, const JobTruth& job) const;
  int32_t PlacesFor(const Waiting& waiting) const;  // on nodes that it may use, with those in use
  static int32_t RoomIn(const std::map<std::string, int32_t>& nodes, const Waiting& waiting);
  void CheckTurn(const control::Key& key, const Placing& placing);
  void CheckCounters(const core::Ledger& before, const core::Ledger& after);
  // Whether there is room for these pods, in addition to all that may be scheduled.
  void CheckRoom(const std::string& what, const std::set<std::string>& uids);
  void CheckGangDecision(const core::Observed& observed, const core::Decision& decision, Time now);
  static bool Restarted(const core::Observed& o, const std::string& node, Time since);
  void CheckSuspects(const core::Observed& o, const core::Ledger& after, Time now);
  bool Stray(const JobTruth& job) const;
  bool StartsWithDefaultQueue(const JobTruth& job) const;
  static int32_t WorkersAdmitted(const core::Observed& o);
  void CheckAdmitted(const core::Observed& o, const core::CreatePod& create);
  void CheckCreated(const control::Key& key, const JobTruth& job, const core::Pod& pod);
  void CheckQuotaFreed(const control::Key& key, const WorkloadTruth& freed);
  void CheckRemoved(const control::Key& key, const JobTruth& job, const Shadow& shadow, const core::Pod& pod);
  void Require(bool holds, const char* invariant, const std::string& what);

  World& world_;
  const Scheduler& scheduler_;
  std::map<control::Key, Shadow> shadows_;
  std::optional<std::string> breach_;
  std::map<control::Key, int32_t> priorities_;
  std::map<control::Key, int64_t> ages_;
  std::map<control::Key, Waiting> waiting_;
  bool clocks_are_wrong_ = false;
  Time decided_at_{};
  int64_t decided_then_ = 0;               // decisions at that moment
  std::map<std::string, Time> creations_;  // pods by name: when their creation was last decided
  std::set<std::string> strays_;           // uids of pods that a deposed leader created
};

}  // namespace ringmaster::sim
