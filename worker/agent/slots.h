// SPDX-License-Identifier: Apache-2.0

// A pod that holds several trainers, a rank each: one agent process (agent.h) per slot, forked from this
// one, each with its own connection, so that a slot fails, restarts and leaves like a pod of its own.
//
// Invariants: no agent outlives this process; the pod ends when all its agents have. A agent that is
// killed is started anew, and the other slots do not notice; one that ends with another code than 0, or is
// killed as soon as it lives, takes the pod with it: the others leave by plan, and the pod ends with that
// first code. Main thread only, signals as for Agent.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/agent/config.h"

namespace ringmaster::agent {

// run_agent(slot) is a agent's whole life, in a process of its own; returns its exit code. `short_life`:
// killed sooner, it is not started again. REQUIRES: no threads.
int SuperviseSlots(int32_t slots, const std::function<int(int32_t slot)>& run_agent,
                   Duration short_life = seconds(1));

// What the trainer of a slot finds in its environment beside what the pod has ("NAME=value" each): its share
// of the threads, and, where there are GPUs, one of them (below). kInvalid as there.
Result<std::vector<std::string>> SlotEnvironment(int32_t slot, int32_t slots, const GetEnv& get, int32_t cpus,
                                                 int32_t gpus);

// Which GPU a trainer takes, where several share a pod (slots) or a machine (RINGMASTER_LOCAL_RANK: which of
// its pods this one is): of those that CUDA_VISIBLE_DEVICES lists, in that order, else by number, and
// RINGMASTER_GPU_TURN lets the trainer, which can see how they are joined, do better. Nothing where the pod
// has one trainer and what it was given. `gpus`: how many device files of GPUs are there. kInvalid when there
// are GPUs, but fewer than slots.
Result<std::vector<std::string>> GpuEnvironment(int32_t slot, int32_t slots, const GetEnv& get, int32_t gpus);

// Device files of NVIDIA GPUs in a folder (/dev).
int32_t CountGpus(const std::string& folder);

}  // namespace ringmaster::agent
