// SPDX-License-Identifier: Apache-2.0

// One pass of causal attention as cuDNN's graph: strides over our packed qkv, so that nothing is moved, and a
// backward pass that adds in an order of its own choice and not of time's.
//
// A graph is built for the GPU of a handle. Without a GPU it is built for one that is described: then all is
// as on that GPU, compiled kernels included, but for running it (tests/cuda/cudnn).
//
// Thread rule: one thread at a time, bound to the device. No exception of cuDNN's headers leaves this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"

struct cudnnContext;

namespace ringmaster::cuda::cudnn {

// What is built for: one of the two.
struct Target {
  cudnnContext* handle = nullptr;
  std::string properties;  // a GPU in cuDNN's words (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
};

class AttentionGraph {
 public:
  // kInvalid with cuDNN's reason when it has no plan for this there.
  static Result<std::unique_ptr<AttentionGraph>> Build(const AttentionProblem& problem, AttentionPass pass,
                                                       const Target& target);
  virtual ~AttentionGraph() = default;

  virtual const AttentionLibrary::Plan& plan() const = 0;

  // What cuDNN was told, in its own words: JSON of the operation and of its tensors, with their uids; and the
  // addresses that those uids are given.
  virtual std::string Description() const = 0;
  virtual std::unordered_map<int64_t, void*> Addresses(const AttentionOperands& operands) const = 0;

  // Enqueues to the handle's stream.
  virtual Status Run(cudnnContext* handle, const AttentionOperands& operands, void* workspace) = 0;
};

// "cuDNN-9.19.0+NVRTC-13.0", of the libraries that are loaded: cuDNN has the numbers of a plan's name, NVRTC
// compiles what they stand for.
std::string LibraryName();

}  // namespace ringmaster::cuda::cudnn
