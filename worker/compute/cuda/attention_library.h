// SPDX-License-Identifier: Apache-2.0

// What a library of somebody else's offers for attention, and what is asked of it. A library does what it
// can: all that it cannot is refused by Prepare, and our kernels do it.
//
// Determinism: equal problems, plans and operands give equal bits on GPUs of one model.
// Thread rule: one thread at a time, bound to the device.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

// One attention of a model, as worker/compute/cuda/kernels/attention.h has it.
struct AttentionProblem {
  int64_t samples = 0;
  int64_t heads = 0;
  int64_t context = 0;
  int64_t head_size = 0;
  DType type = DType::kFloat;
  auto operator<=>(const AttentionProblem&) const = default;
};

enum class AttentionPass : uint8_t { kForward, kBackward };

// Aligned to 256 bytes. Forward reads qkv and writes out and lse; backward reads those and d_out and writes
// d_qkv.
struct AttentionOperands {
  const void* qkv = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  const void* d_out = nullptr;
  void* d_qkv = nullptr;
};

class AttentionLibrary {
 public:
  // How a pass is done: a name, the same where the bits are, without spaces, and memory to work in.
  struct Plan {
    std::string name;
    int64_t workspace_bytes = 0;
  };

  virtual ~AttentionLibrary() = default;

  // "cuDNN-9.19.0+NVRTC-13.0": equal names have equal plans.
  virtual std::string Name() const = 0;

  // kInvalid with the reason when it cannot do this.
  virtual Result<Plan> Prepare(const AttentionProblem& problem, AttentionPass pass) = 0;

  // Enqueues what was prepared, also while the stream is recorded. It was not done when this fails: kGone
  // when the device is lost.
  virtual Status Run(Stream stream, const AttentionProblem& problem, AttentionPass pass,
                     const AttentionOperands& operands, void* workspace) = 0;
};

// That of this machine; kUnavailable says what is missing.
Result<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary();

}  // namespace ringmaster::cuda
