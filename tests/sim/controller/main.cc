// SPDX-License-Identifier: Apache-2.0

// controller_sim [--seed N|today] [--seeds M] [--mutation K|NAME|all] [--trace]
//
// Runs seeds N to N+M-1; `today` is a first seed above 1,000,000 that differs every day (UTC), so that a
// suite that runs every day plays new ones. Without a mutation, every run must keep all invariants; with one,
// some run must break an invariant. The exit status is 0 if so. Each breach prints the command that repeats
// it.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "planted_mutations.h"
#include "tests/sim/controller/simulation.h"
#include "tests/sim/seeds.h"

namespace ringmaster::core {

thread_local Mutation planted = Mutation::kNone;

}  // namespace ringmaster::core

namespace ringmaster::sim {
namespace {

// The mutations of decisions, then those of the planner's source (mutations.py).
constexpr int kAllMutations = kMutations + static_cast<int>(core::Mutation::kCount) - 1;

std::string NameOf(int mutation) {
  return mutation <= kMutations ? MutationName(static_cast<Mutation>(mutation))
                                : core::kMutations[mutation - kMutations];
}

struct Flags {
  uint64_t seed = 1;
  uint64_t seeds = 1;
  int mutation = 0;
  bool all_mutations = false;
  bool trace = false;
};

// A number or a name; a word that is neither must not run without any mutation.
bool ParseMutation(const std::string& value, Flags& flags) {
  for (int k = 0; k <= kAllMutations; ++k) {
    if (value != std::to_string(k) && value != NameOf(k)) continue;
    flags.mutation = k;
    return true;
  }
  return false;
}

bool Parse(int argc, char** argv, Flags& flags) {
  bool today = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--trace") {
      flags.trace = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--seed" && std::strcmp(value, "today") == 0)
      today = true;
    else if (name == "--seed")
      flags.seed = std::strtoull(value, nullptr, 10);
    else if (name == "--seeds")
      flags.seeds = std::strtoull(value, nullptr, 10);
    else if (name == "--mutation" && std::strcmp(value, "all") == 0)
      flags.all_mutations = true;
    else if (name != "--mutation" || !ParseMutation(value, flags))
      return false;
  }
  if (today) flags.seed = FirstSeedOfToday(flags.seeds);
  return true;
}

// Returns whether a breach was found.
bool RunSeeds(const Flags& flags, int mutation, bool report) {
  const Mutation decider = mutation <= kMutations ? static_cast<Mutation>(mutation) : Mutation::kNone;
  core::planted = static_cast<core::Mutation>(mutation <= kMutations ? 0 : mutation - kMutations);
  uint64_t decisions = 0;
  uint64_t crashes = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  int64_t restarts = 0;
  int64_t attempts = 0;
  bool found = false;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.seeds; ++seed) {
    const RunResult result = RunSeed(seed, decider, flags.trace);
    decisions += result.decisions;
    crashes += result.crashes;
    succeeded += static_cast<uint64_t>(result.succeeded);
    failed += static_cast<uint64_t>(result.failed);
    restarts += result.restarts;
    attempts += result.attempts;
    if (!result.breach) continue;
    found = true;
    fmt::print("seed {}: {}\n  again: controller_sim --seed {} --mutation {} --trace\n", seed, *result.breach,
               seed, mutation);
    if (mutation != 0) {  // one is enough
      fmt::print("  found with seed number {}\n", seed - flags.seed + 1);
      break;
    }
  }
  if (report) {
    fmt::print(
        "{} seeds from {} in {:.1f} s: {} decisions, {} succeeded, {} failed, {} attempts, {} restarts, {} "
        "controller "
        "crashes\n",
        flags.seeds, flags.seed, ToSeconds(std::chrono::steady_clock::now() - start), decisions, succeeded,
        failed, attempts, restarts, crashes);
  }
  return found;
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!Parse(argc, argv, flags)) {
    fmt::print(stderr,
               "usage: controller_sim [--seed N|today] [--seeds M] [--mutation 0..{}|NAME|all] [--trace]\n",
               kAllMutations);
    return 2;
  }
  if (!flags.all_mutations) {
    const bool found = RunSeeds(flags, flags.mutation, true);
    return found == (flags.mutation != 0) ? 0 : 1;
  }
  int missed = 0;
  for (int k = 1; k <= kAllMutations; ++k) {
    fmt::print("mutation {} ({}):\n", k, NameOf(k));
    if (RunSeeds(flags, k, false)) continue;
    fmt::print("  NOT CAUGHT in {} seeds\n", flags.seeds);
    missed += 1;
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringmaster::sim

int main(int argc, char** argv) { return ringmaster::sim::Main(argc, argv); }
