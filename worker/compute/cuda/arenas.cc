// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/arenas.h"

#include <utility>

#include "base/log.h"

namespace ringmaster::cuda {
namespace {

// The granularity at which the driver maps memory, on every GPU so far; NCCL rounds its allocations up to it.
constexpr int64_t kPage = int64_t{2} << 20;

}  // namespace

Arenas::~Arenas() {
  // cudaFree waits for the stream; unmapping memory does not.
  if (!nccl_memory_.empty()) (void)Synchronize(stream_);
  for (void* const memory : nccl_memory_) (void)nccl_.free(memory);
}

Result<Arenas::Arena> Arenas::Allocate(int64_t bytes) {
  if (bytes == 0) return Arena{};
  if (void* const memory = AllocateFromNccl(bytes); memory != nullptr) {
    nccl_memory_.push_back(memory);
    FillZero(stream_, memory, bytes);
    RM_TRY(Synchronize(stream_));
    return Arena{.memory = {static_cast<std::byte*>(memory), static_cast<size_t>(bytes)},
                 .taken_bytes = (bytes + kPage - 1) / kPage * kPage,
                 .from_nccl = true};
  }
  RM_ASSIGN(Buffer<std::byte> buffer, Buffer<std::byte>::Create(bytes));
  const std::span<std::byte> memory = cuda_memory_.emplace_back(std::move(buffer)).span();
  return Arena{.memory = memory, .taken_bytes = bytes};
}

// After one failure CUDA allocates the rest: NCCL can use all of a member's memory or none of it.
void* Arenas::AllocateFromNccl(int64_t bytes) {
  if (nccl_.allocate == nullptr || nccl_.free == nullptr || nccl_refused_) return nullptr;
  void* memory = nullptr;
  const int answer = nccl_.allocate(&memory, static_cast<size_t>(bytes));
  if (answer == fabric::nccl::kSuccess && memory != nullptr) return memory;
  nccl_refused_ = true;
  log::Info("NCCL does not allocate {} bytes ({}); its operations will copy their data", bytes,
            nccl_.error_string(answer));
  return nullptr;
}

}  // namespace ringmaster::cuda
