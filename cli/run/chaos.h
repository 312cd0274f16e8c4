// SPDX-License-Identifier: Apache-2.0

// `ringmaster run --chaos`: kills or stops workers during training, to demonstrate and test recovery.
//
// The choice of victims, times and targets is a pure function of the seed. The pids that exist at that time
// are not, so a run with the same seed repeats the schedule but not every detail. ChaosPlan is not
// thread-safe.
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

// Parses "none", "kill=2", "kill=0.5s", "stop=10". Errors: kInvalid for any other text.
Result<ChaosOptions> ParseChaos(const std::string& text, uint64_t seed);

// One injected failure.
struct Strike {
  enum class Target : uint8_t { kTrainer, kAgent, kBoth };
  Target target = Target::kTrainer;
  uint64_t victim = 0;  // modulo the number of live workers
};

class ChaosPlan {
 public:
  explicit ChaosPlan(const ChaosOptions& options) : options_(options), random_(options.seed) {}

  // Returns the time until the next strike: 0.5 to 1.5 intervals.
  Duration NextDelay();
  Strike NextStrike();

 private:
  const ChaosOptions options_;
  SplitMix64 random_;
};

// A live worker that a strike can hit.
struct Victim {
  std::string pod;
  int agent_pid = 0;
  std::vector<int> trainer_pids;
};

// Returns the agents that `pid` or its warden (operator/local/warden.h) started, with their trainers, sorted
// by pod. RINGMASTER_POD in the environment identifies an agent. A pod with several slots has one entry per
// slot.
std::vector<Victim> FindVictims(int pid);

// Sends the signal and describes it ("SIGKILL to the trainer (pid 123) of gpt-1-2"). Returns an empty text
// when no process received a signal.
std::string ExecuteStrike(const Strike& strike, const std::vector<Victim>& victims, int signal);

}  // namespace ringmaster::cli
