// SPDX-License-Identifier: Apache-2.0

// The roles of a job's programs, and which of them decide that the job has succeeded. Value types; pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::rendezvous {

// What follows when a program of a role fails.
enum class ProgramRestart : uint8_t {
  kGang,   // all programs are stopped, and the next incarnation starts
  kAlone,  // it starts again in the same incarnation, at the same address, while the others run
  kNever,  // nothing: the others run without it
};

struct ProgramRole {
  std::string name;      // empty: worker
  int32_t replicas = 1;  // programs; not used of workers, whose number is in the limits
  ProgramRestart restart = ProgramRestart::kGang;
  bool completes = true;  // Decider::kAll waits for it
  bool operator==(const ProgramRole&) const = default;
};

struct ProgramPolicy {
  enum class Decider : uint8_t {
    kAll,    // every program of a role that completes must end with exit code 0
    kFirst,  // the first worker
    kRole,   // every program of the role `decider_role`
  };

  ProgramRole workers;
  std::vector<ProgramRole> roles = {};  // in addition to the workers, in the order of ranks
  Decider decider = Decider::kAll;
  // The program that decides launches the ranks in all workers: kFirst or kRole. Its exit code 0 counts only
  // when the agents have seen all of its ranks (rank_accounts.h).
  bool counts_ranks = false;
  // Workers come and go while the incarnation runs, and the launcher gets their list each time. Requires
  // counts_ranks and kRole.
  bool live_workers = false;
  std::string decider_role = {};
  // Of programs that start again alone: the wait before the first start, which doubles with each of them, and
  // how many starts an incarnation grants one program. Then its failure is one of the gang.
  Duration backoff_initial = seconds(5);
  Duration backoff_max = seconds(300);
  int32_t max_restarts = 10;
  // Exit codes for which the job has a rule: such a failure is always one of the gang, so that the rule
  // applies. Sorted.
  std::vector<int32_t> ruled_exit_codes = {};
  bool operator==(const ProgramPolicy&) const = default;

  // Returns nullptr for a role that the job does not have.
  const ProgramRole* Find(const std::string& role) const {
    if (role.empty()) return &workers;
    const auto it =
        std::find_if(roles.begin(), roles.end(), [&](const ProgramRole& r) { return r.name == role; });
    return it == roles.end() ? nullptr : &*it;
  }
  // Returns the place of a role in the order of ranks: workers first. REQUIRES: the job has the role.
  int64_t OrderOf(const std::string& role) const { return role.empty() ? -1 : Find(role) - roles.data(); }
};

}  // namespace ringmaster::rendezvous
