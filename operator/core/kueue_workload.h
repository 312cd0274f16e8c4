// SPDX-License-Identifier: Apache-2.0

// A job in a queue of Kueue: the Workload that asks for its quota, and what it shows.
//
// Kueue knows no TrainingJob. It admits, preempts and deactivates Workloads, and the owner of a Workload
// follows: the job starts when its Workload is admitted, stops with a checkpoint when the Workload is
// evicted, and clears the admission when no pod is left. Kueue gives the quota to others only then. The
// decisions are in decide_kueue.cc. Pure value types and functions.
//
// The Workload of a job with Job::slices is a slice. To grow, the job asks for a larger slice that replaces
// it (Workload::replaces). Kueue charges the difference, and finishes the replaced slice when it has reserved
// the quota of the larger one. The job has no more workers than before until that one is admitted.
//
// A job with Job::surplus first asks for its minimum. Once that is admitted, it asks for the other workers by
// a second Workload, a *surplus*, of which Kueue may admit a part; then by a third one for the rest. Kueue
// evicts what it admitted last first. So a job that is preempted shrinks in place, to its minimum if need be,
// and stops only when that is evicted, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/job.h"

namespace ringmaster::core {

struct Observed;

// The pods of a Workload that have the same template.
struct PodSet {
  std::string name;  // `worker`, `master` or a role
  int32_t count = 0;
  int32_t min = 0;  // Kueue may admit so few of them; 0: all or none
  bool operator==(const PodSet&) const = default;
};

// The condition PodsReady, by its reasons.
enum class PodsReady : uint8_t { kUnreported, kWaitForStart, kStarted, kWaitForRecovery, kRecovered };
const char* PodsReadyName(PodsReady state);

// What Kueue has reserved for a pod set.
struct Grant {
  std::string name;
  int32_t count = 0;       // without the pods that were given back
  int32_t given_back = 0;  // those
  bool operator==(const Grant&) const = default;
};

struct Workload {
  std::string name;
  std::string uid;
  uint64_t revision = 0;  // the precondition of a change
  std::string queue;
  std::vector<PodSet> pod_sets;
  bool slice = false;
  int32_t surplus = 0;    // from 1: asks for workers above the minimum of a job that runs
  std::string replaces;   // the slice that it replaces when it is admitted; empty: none
  std::string chain;      // the first of the slices that replaced each other; empty: it is no slice
  bool outdated = false;  // its templates or its priority are not those of the job
  bool held = false;      // by our finalizer
  bool deleting = false;
  bool active = true;     // false: a user or Kueue has deactivated it
  bool reserved = false;  // Kueue counts its quota
  bool admitted = false;
  bool evicted = false;
  bool finished = false;
  std::string eviction_reason;
  std::string eviction_message;
  std::string waits_for;  // Kueue's message while nothing is reserved
  int32_t position = 0;   // in its queue, from 1; 0: unknown; kPositionsListed + 1: further back
  PodsReady pods_ready = PodsReady::kUnreported;
  std::vector<Grant> grants;
  std::string missing_flavor;  // a ResourceFlavor of the admission that does not exist; empty: none
  bool operator==(const Workload&) const = default;
};

// What Kueue says about a job.
struct Quota {
  enum class Api : uint8_t {
    kAbsent,  // the cluster does not have Kueue's API
    kUnread,  // its objects have not been listed, or the operator may not read them
    kRead,
  };
  Api api = Api::kAbsent;
  // The LocalQueue that the job's label names, or that ChooseQueue has set; empty: none, or none any more.
  std::string queue;
  bool defaulted = false;  // the job has no label, and `queue` is kDefaultQueue
  // The Workload that MultiKueue has made for the job on this cluster: the job adopts it, and makes none.
  // Empty: it makes its own one.
  std::string prebuilt;
  std::optional<Workload> offered;  // that Workload, while no job owns it
  bool required = false;            // Kueue manages jobs without a queue, too: they do not start
  std::vector<Workload> workloads;  // that the job owns, sorted by name
  bool operator==(const Quota&) const = default;
};

// The LocalQueue of a namespace for jobs without a label.
inline constexpr const char* kDefaultQueue = "default";

// How many Workloads of a queue the operator asks Kueue for.
inline constexpr int32_t kPositionsListed = 100;
// Returns `position 3`, or less exactly `position over 30` far from the head: a queue that moves must not
// change the status of every job in it. Empty: unknown.
std::string PositionText(int32_t position);

inline constexpr const char* kWorkerSet = "worker";
inline constexpr const char* kMasterSet = "master";  // the first worker, when it has another template

// Returns the name of the pod set of this rank.
std::string PodSetOf(const Job& job, int32_t rank);
// Returns the pod sets that the job asks for.
std::vector<PodSet> PodSetsOf(const Job& job);
// Whether of two Workloads that are not finished `a` decides about their job rather than `b`: the one with
// quota, and of two slices with quota the larger one once it is admitted.
bool DecidesBefore(const Workload& a, const Workload& b);
// Returns the Workload that decides about the job, of those that are not finished; never a surplus. nullptr:
// none.
const Workload* LiveWorkload(const Observed& observed);
// Returns the slice with whose quota the job may run while `workload`, which replaces it, has all of the
// job's quota and pending admission checks. nullptr: none.
const Workload* ReplacedInAdvance(const Quota& quota, const Workload& workload);
// Returns how many pods of the set have finished in this attempt, so that they need no quota any more. 0 if
// agents may start them again.
int32_t FinishedIn(const Observed& observed, const std::string& set);
// Returns for how many pods of the set the job has quota, with those that have finished and gave theirs back.
int32_t PodsGranted(const Observed& observed, const Grant& grant);
// Returns the same for its workers. REQUIRES: the Workload is reserved.
int32_t WorkersGranted(const Observed& observed, const Workload& workload);
// What Kueue has admitted above the Workload that decides about the job.
struct Surpluses {
  int32_t admitted = 0;  // workers
  int32_t granted = 0;   // those that the job may have
  // The first surplus that has no workers, and can have none: its flavor does not exist. Neither it nor the
  // surpluses after it are granted, since workers belong to surpluses in their order. nullptr: none.
  const Workload* without_flavor = nullptr;
};
Surpluses SurplusesOf(const Observed& observed);
// Returns how many more workers the job may have by its surpluses.
int32_t SurplusGranted(const Observed& observed);
// Chooses the queue of a job without a label. One with a Workload stays in the queue of that: the Workload is
// the record of the choice. Otherwise, a job without pods that waits to start is put into the LocalQueue
// `default`, if its namespace has one. A backend calls this on what it has observed, and then LimitToQuota.
void ChooseQueue(Observed& observed, bool has_default);
// Limits the job to the workers that Kueue has admitted. A backend calls this on what it has observed.
void LimitToQuota(Observed& observed);

}  // namespace ringmaster::core
