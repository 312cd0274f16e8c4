// SPDX-License-Identifier: Apache-2.0

// Memory of the GPU that collectives work on: NCCL's own where it has some to give, since what cudaMalloc
// gives it neither hands to the switches of NVLink nor to peers, registered or not; else CUDA's.
//
// Thread rule: that to which the GPU is bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/fabric/nccl/api.h"

namespace ringmaster::cuda {

class Arenas {
 public:
  struct Arena {
    std::span<std::byte> memory;
    int64_t taken_bytes = 0;  // of the device's
    bool from_nccl = false;
  };

  // `nccl` without functions: all is CUDA's. `stream`, which outlives this, is for zeroing.
  Arenas(const fabric::nccl::Api& nccl, Stream stream) : nccl_(nccl), stream_(stream) {}
  // Frees all of it. Nobody else knows it any more (a communicator, UCX), and no work on it is under way but
  // the stream's.
  ~Arenas();
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;

  // Zeroed, aligned to 256 bytes. Errors as those of cuda::Allocate.
  Result<Arena> Allocate(int64_t bytes);

 private:
  void* AllocateFromNccl(int64_t bytes);  // nullptr: it gives none

  const fabric::nccl::Api nccl_;
  const Stream stream_;
  bool nccl_refused_ = false;  // by NCCL, once; that has been said
  std::vector<void*> nccl_memory_;
  std::vector<Buffer<std::byte>> cuda_memory_;
};

}  // namespace ringmaster::cuda
