// SPDX-License-Identifier: Apache-2.0

// --chaos: kills or stops workers while they train, to show (and test) that it does not matter.
//
// Which victim, when and how is a pure function of the seed; which pids exist at that moment is not, so a
// seeded schedule is repeatable in kind, not in every detail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "base/time.h"

namespace ringmaster::cli {

struct ChaosOptions {
  enum class Kind : uint8_t { kNone, kKill, kStop };
  Kind kind = Kind::kNone;
  Duration interval{};
  uint64_t seed = 1;
};

// "none", "kill=2", "kill=0.5s", "stop=10". kInvalid otherwise.
Result<ChaosOptions> ParseChaos(const std::string& text, uint64_t seed);

// What to hit next. Pure.
struct Strike {
  enum class Target : uint8_t { kTrainer, kAgent, kBoth };
  Target target = Target::kTrainer;
  uint64_t victim = 0;  // modulo the number of live workers
};

class ChaosPlan {
 public:
  explicit ChaosPlan(const ChaosOptions& options) : options_(options), random_(options.seed) {}

  // Between half and one and a half intervals from now.
  Duration NextDelay();
  Strike NextStrike();

 private:
  const ChaosOptions options_;
  SplitMix64 random_;
};

// A live worker as chaos sees it.
struct Victim {
  std::string pod;
  int agent_pid = 0;
  std::vector<int> trainer_pids;
};

// The children of a process (of any of its threads) by /proc; empty when it is gone.
std::vector<int> ChildrenOf(int pid);

// The agents that `pid` keeps, known by RINGMASTER_POD in their environment, with their trainers; by pod. A
// pod with slots has one for each.
std::vector<Victim> FindVictims(int pid);

// Sends the signal and says what was done ("SIGKILL to the trainer (pid 123) of gpt-1-2"); empty when there
// was nobody to hit.
std::string Carry(const Strike& strike, const std::vector<Victim>& victims, int signal);

}  // namespace ringmaster::cli
