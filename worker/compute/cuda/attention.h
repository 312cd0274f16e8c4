// SPDX-License-Identifier: Apache-2.0

// Causal attention of a GPU, from packed q, k, v (worker/compute/cuda/kernels/attention.h has the layouts):
// by our own kernels, which are always there, or by a library that is quicker (attention_library.h: cuDNN).
//
// As products (matmul.h), every problem is made known once, before the first step: who does it is then
// chosen, by measuring on random data or from what an earlier run has stored, and stays. Who does it is a
// choice of bits, so it is part of what members of a job agree upon (Choices, Adopt). Forward and backward
// are chosen each by itself, because what forward keeps means the same to both makers: `lse` is [samples,
// heads, context] of float, the natural logarithm of the sum of exponentials of a row's scaled scores, which
// is what cuDNN calls softmax statistics (the row's largest score plus the logarithm of the sum of
// exponentials of what the others are below it, scores being scaled first) and takes off the scores in its
// backward pass.
//
// Thread rule: one thread at a time, bound to the device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/cuda/attention_choices.h"
#include "worker/compute/cuda/attention_library.h"
#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

class Attention {
 public:
  struct Config {
    std::string cache_folder;  // where choices are kept between runs; empty: nowhere
  };

  // For the calling thread's device, which `device` describes. A library that cannot be loaded is no error:
  // there are our kernels.
  static Result<std::unique_ptr<Attention>> Create(const Config& config, const DeviceProperties& device);
  virtual ~Attention() = default;

  // Makes a problem known and chooses who does it. Waits for the device.
  virtual Status Prepare(const AttentionProblem& problem) = 0;

  // Enqueues, also while the stream is recorded. The problem must be known. Forward writes out and lse;
  // backward writes d_qkv, and `scratch`, floats as many as Scratch.
  virtual void Forward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands) = 0;
  virtual void Backward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands,
                        float* scratch) = 0;
  static int64_t Scratch(const AttentionProblem& problem);
  // What a library has refused although it was prepared, since this was last asked: the work is not done.
  virtual Status TakeError() = 0;

  // The choices of all known problems, as text that another process on the same kind of GPU can adopt;
  // kInvalid says what is missing there.
  virtual std::string Choices() const = 0;
  virtual Status Adopt(const std::string& choices) = 0;
  // Of kind of GPU and choices: equal on processes whose attention has equal bits.
  virtual uint64_t Fingerprint() const = 0;

  // Another number whenever what was recorded before (runtime/graph.h) holds something that is no longer
  // so: a choice that was replaced, or the library's memory.
  virtual uint64_t Version() const = 0;

  // Device memory that the library's part of all known problems works in.
  virtual int64_t WorkspaceBytes() const = 0;

  // For benchmarks and people: who does a known problem, and one pass of it by our kernels or by the library,
  // whoever was chosen. kUnavailable when there is none; it may wait for the device.
  virtual AttentionBackend Backend(const AttentionProblem& problem, AttentionPass pass) const = 0;
  virtual Status RunWith(bool library, Stream stream, const AttentionProblem& problem, AttentionPass pass,
                         const AttentionOperands& operands, float* scratch) = 0;
};

}  // namespace ringmaster::cuda
