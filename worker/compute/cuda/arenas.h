// SPDX-License-Identifier: Apache-2.0

// GPU memory for collectives. NCCL allocates it if it can, since it shares memory of cudaMalloc neither with
// NVLink switches nor with peers, registered or not. Otherwise CUDA does.
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

// Not thread-safe. REQUIRES: the GPU is bound to the calling thread.
class Arenas {
 public:
  struct Arena {
    std::span<std::byte> memory;
    int64_t taken_bytes = 0;  // of device memory
    bool from_nccl = false;
  };

  // If `nccl` has no functions, CUDA allocates everything. `stream` zeroes the memory. REQUIRES: `stream`
  // outlives the Arenas.
  Arenas(const fabric::nccl::Api& nccl, Stream stream) : nccl_(nccl), stream_(stream) {}
  // Frees all memory. REQUIRES: no communicator and no UCX context uses it any more, and only `stream` has
  // work on it in flight.
  ~Arenas();
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;

  // Returns zeroed memory, aligned to 256 bytes. Errors: those of cuda::Allocate.
  Result<Arena> Allocate(int64_t bytes);

 private:
  void* AllocateFromNccl(int64_t bytes);  // nullptr on failure

  const fabric::nccl::Api nccl_;
  const Stream stream_;
  bool nccl_refused_ = false;  // NCCL failed once, which was logged
  std::vector<void*> nccl_memory_;
  std::vector<Buffer<std::byte>> cuda_memory_;
};

}  // namespace ringmaster::cuda
