// SPDX-License-Identifier: Apache-2.0

// Chooses the GPU of its pod that a trainer uses, and the RDMA ports (NICs) that are near that GPU by PCI. By
// default UCX takes the fastest ports of the machine, even those of another socket.
//
// NCCL gets the ports of the whole pod, the same list in all its slots: NCCL measures distances itself, and
// ranks of one machine that see different ports disagree on the numbers of the ports.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {

// Returns the indices of the GPUs in the order in which ranks should use them: neighbours exchange most data,
// so they are joined by NVLink if possible, else near by PCI. Pure.
std::vector<int32_t> IndicesInRingOrder(const std::vector<Gpu>& gpus);

// Returns the CUDA_VISIBLE_DEVICES of the trainer with this `turn` (RINGMASTER_GPU_TURN: the number of the
// slot in its pod, or of the worker on its machine). With more turns than GPUs, trainers share GPUs. nullopt:
// keep the variable, since no turn is set, or instances (MIG) have other numbers than GPUs. Pure.
std::optional<std::string> GpuForTurn(const std::vector<Gpu>& gpus, const std::optional<std::string>& turn);

struct NicSelection {
  std::vector<std::string> own;  // near this process's GPUs: "mlx5_0:1"; sorted
  std::vector<std::string> pod;  // near any GPU of the pod
  bool operator==(const NicSelection&) const = default;
};

// `gpus` are all GPUs of the pod, with their locations; `visible` is a CUDA_VISIBLE_DEVICES. Returns nothing
// if the distance of a GPU to the ports is unknown: the libraries choose then. Pure.
NicSelection SelectNics(const std::vector<Gpu>& gpus, const std::string& visible,
                        const std::vector<RdmaPort>& ports);

// Returns the environment variables that make the libraries use these NICs, except those that the user has
// set. The variable of UCX also names the network interfaces, which UCX needs to reach peers without RDMA.
using GetEnv = std::function<std::optional<std::string>(const std::string& name)>;
std::vector<std::pair<std::string, std::string>> NicEnvironment(const NicSelection& nics,
                                                                const std::vector<std::string>& interfaces,
                                                                const GetEnv& get);

// Returns the GPUs of this machine with their locations. `library`: of NVML; `root`: as for Collect.
std::vector<Gpu> FindGpus(const std::string& library, const std::string& root);

}  // namespace ringmaster::inventory
