// SPDX-License-Identifier: Apache-2.0

// Supervises a pod with several trainers (slots), one rank each. This process forks one agent (agent.h) per
// slot, so a slot fails, restarts and leaves like a pod by itself, and one relay (slot_relay.h), through
// which the agents share a connection to the coordinator.
//
// Invariants: no agent outlives this process. The pod ends when all its agents have ended. An agent that is
// killed restarts without affecting the other slots, once everything that it has started has ended, and so
// does the relay. An agent that exits with a code other than 0, or that is killed right after its start, ends
// the pod: the other slots leave by plan, and the pod exits with that first code.
//
// Not thread-safe; main thread only. REQUIRES: signals are blocked as for Agent.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/config.h"

namespace ringmaster::agent {

// What the processes of a pod run; the result is the exit code.
struct SlotPrograms {
  std::function<int(int32_t slot, int doorbell)> agent;
  std::function<int(std::vector<Fd> doorbells)> relay;
  bool pass_signals = false;  // to each agent: those of signals.h, which are blocked then
};

// Runs the programs in separate processes and returns the pod's exit code. One that is killed before
// `short_life` is not restarted. REQUIRES: this process has one thread.
int SuperviseSlots(int32_t slots, const SlotPrograms& programs, Duration short_life = seconds(1));

// Returns the variables ("NAME=value") that config.slot adds to the environment of its trainer or program:
// with several slots its share of the threads, and the GPUs that it sees. `gpus`: the number of GPU device
// files. Errors: kInvalid when the pod has GPUs, but fewer than slots; the ranks of MPI may share.
Result<std::vector<std::string>> SlotEnvironment(const Config& config, const GetEnv& get, int32_t cpus,
                                                 int32_t gpus);

// Returns the variables that select one GPU where several trainers share a pod (slots) or a machine
// (RINGMASTER_LOCAL_RANK: the index of this pod on the machine): GPUs are taken in the order of
// CUDA_VISIBLE_DEVICES, or by number. RINGMASTER_GPU_TURN lets the trainer choose better by the GPUs'
// topology. Empty for a pod with a single trainer and its own GPUs. Errors: as SlotEnvironment.
Result<std::vector<std::string>> OwnGpu(int32_t slot, int32_t slots, const GetEnv& get, int32_t gpus);

// Returns the variable that selects the GPUs of a pod whose ranks all see them and take one by their local
// rank, as under torchrun. Empty for a pod with its own GPUs. Pods that share a machine take turns as in
// OwnGpu.
std::vector<std::string> PodGpus(int32_t ranks, const GetEnv& get, int32_t gpus);

// Counts the device files of NVIDIA GPUs in a folder (/dev).
int32_t CountGpus(const std::string& folder);

}  // namespace ringmaster::agent
