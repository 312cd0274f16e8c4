// SPDX-License-Identifier: Apache-2.0

// One pass of causal attention as a cuDNN graph. Strides address the packed qkv in place, without copies.
// The backward pass is the deterministic one, whose order of additions does not depend on timing.
//
// A graph is built for the GPU of a handle. Without a GPU it is built for the description of one: everything,
// compiled kernels included, is then as on that GPU, but the graph cannot run (tests/cuda/cudnn).
//
// Not thread-safe: one thread at a time, bound to the device. Catches all exceptions of cuDNN's headers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"

struct cudnnContext;

namespace ringmaster::cuda::cudnn {

// The GPU that a graph is built for: exactly one member is set.
struct Target {
  cudnnContext* handle = nullptr;
  std::string properties;  // the JSON of a GPU (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
};

class AttentionGraph {
 public:
  // Errors: kInvalid with cuDNN's reason when it has no plan for the problem on the target.
  static Result<std::unique_ptr<AttentionGraph>> Build(const AttentionProblem& problem, AttentionPass pass,
                                                       const Target& target);
  virtual ~AttentionGraph() = default;

  virtual const AttentionLibrary::Plan& plan() const = 0;

  // For tests: cuDNN's JSON of the operation and of its tensors, with their uids; and the addresses of these
  // uids.
  virtual std::string Description() const = 0;
  virtual std::unordered_map<int64_t, void*> Addresses(const AttentionOperands& operands) const = 0;

  // Enqueues the pass on the stream of the handle.
  virtual Status Run(cudnnContext* handle, const AttentionOperands& operands, void* workspace) = 0;
};

// Returns the versions of the loaded libraries, "cuDNN-9.19.0+NVRTC-13.0". A plan's name identifies an
// engine of cuDNN; NVRTC compiles its kernels.
std::string LibraryName();

}  // namespace ringmaster::cuda::cudnn
