// SPDX-License-Identifier: Apache-2.0

// programs_sim [--seed N|today] [--seeds M] [--mutation K|all] [--mutation-seeds M] [--trace]
// Runs seeds N .. N+M-1; `today` is a first seed above 1,000,000 that differs every day (UTC). When an
// invariant breaks, prints the seed and the command that runs it again, and exits with 1. With --mutation,
// plants bug K of mutations.py; exits with 1 when no seed of --mutation-seeds notices it.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "planted_mutations.h"
#include "tests/sim/programs/world.h"
#include "tests/sim/seeds.h"

namespace ringmaster::rendezvous {

thread_local Mutation planted = Mutation::kNone;

namespace sim {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t seeds = 1000;
  uint64_t mutation_seeds = 20000;
  std::string mutation;
  bool trace = false;
};

int RunSeeds(const Flags& flags) {
  uint64_t events = 0, incarnations = 0, faults = 0, incidents = 0;
  Duration time{};
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.seeds; ++seed) {
    const Outcome outcome = World(seed, flags.trace).Run();
    if (!outcome.ok) {
      fmt::print("seed {}: {}\n  again: programs_sim --seed {} --seeds 1 --trace\n", seed, outcome.violation,
                 seed);
      return 1;
    }
    events += outcome.events;
    incarnations += outcome.incarnations;
    incidents += outcome.incidents;
    faults += outcome.faults;
    time += outcome.end - Time{};
  }
  fmt::print(
      "{} seeds from {}: {} events, {} incarnations, {} incidents, {} faults, {:.0f} s of virtual time\n",
      flags.seeds, flags.seed, events, incarnations, incidents, faults, ToSeconds(time));
  return 0;
}

bool Caught(int mutation, const Flags& flags) {
  planted = static_cast<Mutation>(mutation);
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.mutation_seeds; ++seed) {
    const Outcome outcome = World(seed, flags.trace).Run();
    if (outcome.ok) continue;
    fmt::print("mutation {} ({}): caught by seed {}: {}\n", mutation, kMutations[mutation], seed,
               outcome.violation);
    return true;
  }
  fmt::print("mutation {} ({}): NOT CAUGHT in {} seeds from {}\n", mutation, kMutations[mutation],
             flags.mutation_seeds, flags.seed);
  return false;
}

int Main(int argc, char** argv) {
  Flags flags;
  bool today = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--trace") {
      flags.trace = true;
      continue;
    }
    if (i + 1 == argc) {
      fmt::print(stderr, "{}: needs a value\n", flag);
      return 2;
    }
    const char* value = argv[++i];
    if (flag == "--seed" && std::strcmp(value, "today") == 0) {
      today = true;
    } else if (flag == "--seed") {
      flags.seed = std::strtoull(value, nullptr, 10);
    } else if (flag == "--seeds") {
      flags.seeds = std::strtoull(value, nullptr, 10);
    } else if (flag == "--mutation-seeds") {
      flags.mutation_seeds = std::strtoull(value, nullptr, 10);
    } else if (flag == "--mutation") {
      flags.mutation = value;
    } else {
      fmt::print(stderr, "{}: unknown flag\n", flag);
      return 2;
    }
  }
  if (today) flags.seed = ringmaster::sim::FirstSeedOfToday(flags.seeds);
  if (flags.mutation.empty()) return RunSeeds(flags);
  if (flags.mutation != "all") return Caught(std::atoi(flags.mutation.c_str()), flags) ? 0 : 1;
  bool all = true;
  for (int k = 1; k < static_cast<int>(Mutation::kCount); ++k) all = Caught(k, flags) && all;
  return all ? 0 : 1;
}

}  // namespace
}  // namespace sim
}  // namespace ringmaster::rendezvous

int main(int argc, char** argv) { return ringmaster::rendezvous::sim::Main(argc, argv); }
