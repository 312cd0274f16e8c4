// SPDX-License-Identifier: Apache-2.0

// The job's spec, reduced to what a decision needs. control/convert.h converts it from the API object, so
// that core depends on neither JSON nor YAML. Value types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/program_policy.h"

namespace ringmaster::core {

enum class RuleAction : uint8_t {
  kRestart,
  kFail,
  kIgnore,  // like kRestart, but neither counted nor remembered as the last failure
};

// A rule matches when all members that are set match. An empty rule matches every failure.
struct Rule {
  std::vector<int32_t> exit_codes;
  std::optional<bool> node_unreachable;
  std::optional<bool> hang;
  std::string pod_condition;
  std::string message_regex;
  RuleAction action = RuleAction::kRestart;
  bool charge = true;
  bool exclude_node = false;  // new pods avoid the node of the failure for a while
  bool operator==(const Rule&) const = default;
};

// The requested mode. The backend resolves it to Observed::provider.
enum class GangMode : uint8_t { kAuto, kNone, kGate, kNative, kVolcano, kCoscheduling };

enum class CleanPods : uint8_t { kNone, kRunning, kAll };

// Which ranks must end with exit code 0 for a job without a coordinator to succeed.
enum class Success : uint8_t { kAllWorkers, kRank0 };

// The rank of a pod is its number among the workers. Pods of another role have ranks above all workers, so
// that ranks stay the same when the number of workers changes, and every name is a function of the rank.
inline constexpr int32_t kRanksPerRole = 1 << 16;

// Whether pods can have this role; empty: worker.
bool IsRole(const std::string& role);

// Returns the rank of pod `index` of a role. REQUIRES: IsRole(role).
int32_t RankInRole(const std::string& role, int32_t index);

struct RolePlace {
  std::string role;  // empty: worker
  int32_t index = 0;
};
// Returns what RankInRole was given; nullopt: no pod has this rank.
std::optional<RolePlace> RolePlaceOf(int32_t rank);

// How long the agents may take to end without a deletion after a success, when no code of the user follows.
inline constexpr Duration kFinishGrace = seconds(3);

struct Job {
  std::string name;
  std::string uid;              // changes when a job is deleted and created again under the same name
  int64_t spec_generation = 1;  // increases with every change of the spec
  bool deleted = false;
  bool orphans = false;   // deleted with --cascade=orphan: its pods run on
  bool in_place = true;   // agents restart ranks in their pods, so only a lost pod is created again
  bool programs = false;  // in place, and the agents run programs of the user that know nothing of Ringmaster
  bool library = false;   // in place, and the trainers are programs of the user with libringmaster
  bool suspend = false;
  bool wants_rdma = false;  // requested; a fallback to TCP is reported

  Success success = Success::kAllWorkers;
  int32_t replicas = 1;
  int32_t min = 1;
  int32_t max = 1;
  int32_t slots = 1;           // ranks per pod; only in place
  bool first_differs = false;  // the first worker has another template
  rendezvous::ProgramPolicy policy =
      {};  // only with programs; its roles have pods in addition to the workers

  Duration grace = seconds(120);      // for a checkpoint, when pods are stopped
  Duration stop_grace = seconds(30);  // from SIGTERM to SIGKILL of a program that is restarted in place
  Duration finish_grace = kFinishGrace;
  int32_t max_restarts = 10;
  int32_t max_without_progress = 3;
  Duration backoff_initial = seconds(5);
  Duration backoff_max = seconds(300);
  std::vector<Rule> rules;

  GangMode gang = GangMode::kAuto;
  Duration gang_timeout = seconds(600);  // for finding nodes; then the gang is withdrawn; 0: no limit
  bool autoscaler = false;               // pods are released before there is room, so that nodes are added
  bool preempt = false;            // while it waits at the gate, jobs of lower priority make room for it
  std::string topology_required;   // all pods need nodes with one value of this label; empty: none
  std::string topology_preferred;  // they should have nodes with few values of this one; empty: none
  std::string gang_queue;          // the queue of Volcano that it names; empty: the default one

  Duration startup_limit = seconds(1800);  // all pods run -> first step; one pod bound -> running
  Duration unreachable_node_limit = seconds(60);
  Duration node_exclusion = seconds(86400);
  Duration active_deadline{0};  // 0: none; time spent suspended does not count
  std::optional<Duration> ttl;  // after its end the job is deleted
  CleanPods clean_pods = CleanPods::kRunning;
  Duration progress_interval = seconds(5);  // between two status writes for progress alone

  bool remote = false;             // Kueue runs it on another cluster (MultiKueue)
  bool slices = false;             // in a queue of Kueue it grows by slices of its Workload
  bool surplus = false;            // there it asks for workers above its minimum by another Workload
  std::optional<int32_t> granted;  // the workers that Kueue has admitted; unset: no limit
  // The workers that preemption leaves it. Neither is part of the spec: the backend takes this one from the
  // ledger (AllowedWorkers in core/status.h).
  int32_t allowed = std::numeric_limits<int32_t>::max();

  // The desired number of workers: the scale subresource, clamped to min and max.
  int32_t Wanted() const { return std::clamp(replicas, min, std::max(min, max)); }
  // The workers that the gang has: fewer than desired when Kueue has admitted fewer, or while it is
  // preempted.
  int32_t Target() const {
    const int32_t limit = granted ? std::min(allowed, *granted) : allowed;
    return std::max(std::min(Wanted(), limit), min);
  }
  // The label of scheduling.topology by which ring neighbours are chosen and the spread of the pods is
  // reported; empty: none.
  const std::string& TopologyKey() const {
    return topology_preferred.empty() ? topology_required : topology_preferred;
  }
  // The pods of other roles.
  int32_t RolePods() const;
  // Whether a gang with this number of workers has the rank.
  bool HasRank(int32_t workers, int32_t rank) const;
  // The ranks of such a gang: the workers', then those of each role.
  std::vector<int32_t> RanksOf(int32_t workers) const;
  // Returns the rank that stands for all whose pods have the same template: those of its role. The first
  // worker may have another one.
  int32_t KindOf(int32_t rank) const;
  bool operator==(const Job&) const = default;
};

}  // namespace ringmaster::core
