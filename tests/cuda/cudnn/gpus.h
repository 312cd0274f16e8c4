// SPDX-License-Identifier: Apache-2.0

// Descriptions of GPUs in the JSON of cuDNN, for tests without a GPU.
#pragma once

#include <string>

namespace ringmaster::cuda::cudnn {

struct DescribedGpu {
  const char* name;
  int architecture;  // 90 for sm_90
  int multiprocessors;
  int shared_memory;  // per block, in bytes
  int l2_cache;       // bytes
  double memory;      // bytes
};

inline constexpr DescribedGpu kGpus[] = {
    {"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 41943040, 85e9},
    {"NVIDIA H200", 90, 132, 232448, 62914560, 150e9},
    {"NVIDIA B200", 100, 148, 232448, 132644864, 190e9},
};

// For Target::properties.
std::string Describe(const DescribedGpu& gpu);

// The GPU that the emulated cudart describes (runtime.cc): cuDNN's headers query its architecture.
void SetGpu(const DescribedGpu& gpu);

}  // namespace ringmaster::cuda::cudnn
