// SPDX-License-Identifier: Apache-2.0

// Which GPU of its pod a trainer takes, and which RDMA ports: those near that GPU, by PCI. Left alone, UCX
// takes the fastest ports of the machine, whichever socket they are on.
//
// NCCL's list is that of the whole pod, equal in all its slots: it measures distances itself, and ranks of
// one machine that see different ports do not understand each other's numbers for them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {

// The numbers of GPUs in the order in which ranks should take them: those that follow each other exchange
// most, so they are joined by NVLink where they can be, else near by PCI. Pure.
std::vector<int32_t> IndicesInRingOrder(const std::vector<Gpu>& gpus);

// What CUDA_VISIBLE_DEVICES becomes for the trainer whose turn it is (RINGMASTER_GPU_TURN: the slots of a pod
// count, or the workers of one machine): when there are more turns than GPUs, they share. nullopt: leave it
// as it is, since nobody asks for an order, or instances (MIG) have other numbers than GPUs. Pure.
std::optional<std::string> GpuForTurn(const std::vector<Gpu>& gpus, const std::optional<std::string>& turn);

struct NicSelection {
  std::vector<std::string> own;  // of this process's GPUs: "mlx5_0:1"; sorted
  std::vector<std::string> pod;  // of all GPUs of the pod
  bool operator==(const NicSelection&) const = default;
};

// Pure. `gpus` are all of the pod, with their locations; `visible` as CUDA_VISIBLE_DEVICES. Empty where a
// GPU's distance to the ports is unknown: then the libraries choose.
NicSelection SelectNics(const std::vector<Gpu>& gpus, const std::string& visible,
                        const std::vector<RdmaPort>& ports);

// The variables of the environment that make the libraries use them; what the user has set stays. UCX's names
// the interfaces of the network too, by which it reaches who has no RDMA.
using GetEnv = std::function<std::optional<std::string>(const std::string& name)>;
std::vector<std::pair<std::string, std::string>> NicEnvironment(const NicSelection& nics,
                                                                const std::vector<std::string>& interfaces,
                                                                const GetEnv& get);

// GPUs of this machine with their locations. `library` is NVML's; `root` as for Collect.
std::vector<Gpu> FindGpus(const std::string& library, const std::string& root);

}  // namespace ringmaster::inventory
