// SPDX-License-Identifier: Apache-2.0

// The coordinator's report about one job: input of core::Decide, shown to users. Value types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

enum class GangPhase : uint8_t {
  kForming,   // no generation has trained yet, or a new one is being formed
  kActive,    // a generation trains
  kPaused,    // fewer members than min: survivors hold the state in memory and wait
  kStopping,  // a requested stop is in progress
  kStopped,   // stopped at a durable boundary
  kFinished,  // all steps done, final checkpoint published
  kFailed,    // no restart helps: `failure` says why
};

struct FailureRecord {
  std::string pod;
  std::string evidence;
  int32_t exit_code = 0;
  std::string message;
  bool operator==(const FailureRecord&) const = default;
};

// What ended an incarnation of programs: its first failure. Later ones are consequences.
struct Incident {
  Generation generation = 0;
  FailureRecord root;
  bool operator==(const Incident&) const = default;
};

struct WorkerFacts {
  std::string pod;
  Facts facts;
  bool operator==(const WorkerFacts&) const = default;
};

struct Report {
  GangPhase phase = GangPhase::kForming;
  uint32_t term = 0;  // of the coordinator
  Generation generation = 0;
  int32_t generations = 0;               // published so far
  std::vector<std::string> live_pods;    // pods whose slots are all members, in rank order
  std::vector<std::string> silent_pods;  // connected but silent: suspended or cut off. Sorted
  std::vector<std::string> heard_pods;   // connected and not silent, members or not. Sorted
  int64_t step = 0;                      // newest committed step
  int64_t total_steps = 0;
  double loss = 0;
  double samples_per_second = 0;  // while it trains: over the time of the steps
  int64_t seconds_left = 0;       // of programs: what the one that runs has estimated; 0: unknown
  int64_t kept_samples = 0;       // of the steps that this coordinator saw committed for the first time
  int64_t checkpoint_step = -1;
  std::string checkpoint_failure;         // why the newest checkpoint could not be written; empty: no failure
  std::string transport;                  // of the newest generation that trained; empty: not reported yet
  int32_t worker_failures = 0;            // Down events of members (not planned leaves)
  int32_t failures_without_progress = 0;  // consecutive generations lost without a commit
  int64_t lost_steps = 0;                 // committed steps that were repeated because all copies were lost
  std::vector<WorkerFacts> facts;         // one for each slot that has reported
  std::vector<std::string> stragglers;    // pods of members that are slow (straggler_rule.h), by rank
  std::optional<FailureRecord> last_failure;
  // Of programs: the newest failure of a program. The next incarnation waits until it is accounted.
  std::optional<Incident> incident;
  // Of programs: which workers cannot reach which others. The first incarnation waits for it to be empty.
  std::string unreachable;
  std::string failure;  // why the job failed, unless last_failure is the reason
  std::optional<Done> done;
  // Orders the reports of a job also before a coordinator's first generation.
  Generation Newest() const { return std::max(generation, static_cast<Generation>(term) << 32); }
  bool operator==(const Report&) const = default;
};

}  // namespace ringmaster::rendezvous
