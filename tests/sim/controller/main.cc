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

#include "tests/sim/controller/simulation.h"
#include "tests/sim/seeds.h"

namespace ringmaster::sim {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t seeds = 1;
  int mutation = 0;
  bool all_mutations = false;
  bool trace = false;
};

// A number or a name; a word that is neither must not run without any mutation.
bool ParseMutation(const std::string& value, Flags& flags) {
  for (int k = 0; k <= kMutations; ++k) {
    if (value != std::to_string(k) && value != MutationName(static_cast<Mutation>(k))) continue;
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
bool RunSeeds(const Flags& flags, Mutation mutation, bool report) {
  uint64_t decisions = 0;
  uint64_t crashes = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  int64_t restarts = 0;
  int64_t attempts = 0;
  bool found = false;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.seeds; ++seed) {
    const RunResult result = RunSeed(seed, mutation, flags.trace);
    decisions += result.decisions;
    crashes += result.crashes;
    succeeded += static_cast<uint64_t>(result.succeeded);
    failed += static_cast<uint64_t>(result.failed);
    restarts += result.restarts;
    attempts += result.attempts;
    if (!result.breach) continue;
    found = true;
    fmt::print("seed {}: {}\n  again: controller_sim --seed {} --mutation {} --trace\n", seed, *result.breach,
               seed, static_cast<int>(mutation));
    if (mutation != Mutation::kNone) {  // one is enough
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
               kMutations);
    return 2;
  }
  if (!flags.all_mutations) {
    const auto mutation = static_cast<Mutation>(flags.mutation);
    const bool found = RunSeeds(flags, mutation, true);
    return found == (mutation != Mutation::kNone) ? 0 : 1;
  }
  int missed = 0;
  for (int k = 1; k <= kMutations; ++k) {
    const auto mutation = static_cast<Mutation>(k);
    fmt::print("mutation {} ({}):\n", k, MutationName(mutation));
    if (RunSeeds(flags, mutation, false)) continue;
    fmt::print("  NOT CAUGHT in {} seeds\n", flags.seeds);
    missed += 1;
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringmaster::sim

int main(int argc, char** argv) { return ringmaster::sim::Main(argc, argv); }
