// SPDX-License-Identifier: Apache-2.0

// The interface to a third-party library for attention. Prepare rejects what the library does not support;
// the native kernels compute it then.
//
// Determinism: equal problems, plans and operands give equal bits on GPUs of one model.
// Not thread-safe: one thread at a time, bound to the device.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

// The attention of a model, as in kernels/attention.h.
struct AttentionProblem {
  int64_t samples = 0;    // B
  int64_t heads = 0;      // H
  int64_t context = 0;    // T
  int64_t head_size = 0;  // D
  DType type = DType::kFloat;
  auto operator<=>(const AttentionProblem&) const = default;
};

enum class AttentionPass : uint8_t { kForward, kBackward };

// Device memory, aligned to 256 bytes. Forward reads qkv and writes out and lse; backward reads qkv, out,
// lse and d_out and writes d_qkv.
struct AttentionOperands {
  const void* qkv = nullptr;    // (B, T, 3, H, D)
  void* out = nullptr;          // (B, T, H, D)
  float* lse = nullptr;         // (B, H, T)
  const void* d_out = nullptr;  // (B, T, H, D)
  void* d_qkv = nullptr;        // (B, T, 3, H, D)
};

class AttentionLibrary {
 public:
  // The algorithm of a pass. Plans of equal names give equal bits; a name has no spaces.
  struct Plan {
    std::string name;
    int64_t workspace_bytes = 0;
  };

  virtual ~AttentionLibrary() = default;

  // Name and versions: "cuDNN-9.19.0+NVRTC-13.0". Libraries of equal names have equal plans.
  virtual std::string Name() const = 0;

  // Errors: kInvalid with the reason when the library does not support the problem.
  virtual Result<Plan> Prepare(const AttentionProblem& problem, AttentionPass pass) = 0;

  // Enqueues a prepared pass; works while the stream is being captured. On an error nothing was enqueued;
  // kGone: the device is lost.
  virtual Status Run(Stream stream, const AttentionProblem& problem, AttentionPass pass,
                     const AttentionOperands& operands, void* workspace) = 0;
};

// Loads the library of this machine. Errors: kUnavailable with what is missing.
Result<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary();

}  // namespace ringmaster::cuda
