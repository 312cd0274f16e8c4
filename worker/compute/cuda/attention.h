// SPDX-License-Identifier: Apache-2.0

// Causal self-attention on a GPU, from packed q, k, v (kernels/attention.h has formula and shapes). Two
// backends: the native kernels of this repository, which are always available, and a library
// (attention_library.h: cuDNN).
//
// As with GEMM (gemm.h), every problem is prepared once, before the first step. Prepare chooses a backend for
// each pass and keeps it: the library, where its results on random data are right, or the faster one of both
// (Config), from the choices that an earlier run stored or by a trial. The backend determines the bits, so
// the choices are part of the plan that the members of a job share (Choices, Adopt).
//
// Forward and backward may use different backends, because both define `lse` in the same way: shape (B, H,
// T), float, the natural logarithm of the sum over keys of exp(scaled score). cuDNN calls it softmax
// statistics.
//
// Not thread-safe: one thread at a time, bound to the device.
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
    std::string cache_folder;  // stores choices between runs; empty: not stored
    bool measure = true;       // keep the faster backend; otherwise the library, where its results are right
  };

  // Creates an instance for the calling thread's device, which `device` describes. A library that cannot be
  // loaded is not an error: the native kernels are used.
  static Result<std::unique_ptr<Attention>> Create(const Config& config, const DeviceProperties& device);
  virtual ~Attention() = default;

  // Prepares a problem and chooses its backends. Blocks until the device is idle.
  virtual Status Prepare(const AttentionProblem& problem) = 0;

  // Enqueues a pass; works while the stream is being captured. Forward writes out and lse; backward writes
  // d_qkv and `scratch`, Scratch(problem) floats. REQUIRES: the problem is prepared.
  virtual void Forward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands) = 0;
  virtual void Backward(Stream stream, const AttentionProblem& problem, const AttentionOperands& operands,
                        float* scratch) = 0;
  static int64_t Scratch(const AttentionProblem& problem);
  // Returns and clears the first error of the library since the last call; that pass was not enqueued.
  virtual Status TakeError() = 0;

  // Returns the choices of all prepared problems as text that another process can adopt.
  virtual std::string Choices() const = 0;
  // Errors: kInvalid, with what is missing, when this process cannot run the choices.
  virtual Status Adopt(const std::string& choices) = 0;
  // Returns a hash of GPU model and choices: equal for processes whose attention has equal bits.
  virtual uint64_t Fingerprint() const = 0;

  // Changes whenever a graph recorded before (runtime/graph.h) became stale: a choice or the address of the
  // library's workspace has changed.
  virtual uint64_t Version() const = 0;

  // Returns the device memory that the library uses for all prepared problems.
  virtual int64_t WorkspaceBytes() const = 0;

  // For benchmarks and logs: the backend of a prepared problem, and one pass with the library (`library`) or
  // with the native kernels, independent of the choice. Errors: kUnavailable without a library. May block.
  virtual AttentionBackend Backend(const AttentionProblem& problem, AttentionPass pass) const = 0;
  virtual Status RunWith(bool library, Stream stream, const AttentionProblem& problem, AttentionPass pass,
                         const AttentionOperands& operands, float* scratch) = 0;
};

}  // namespace ringmaster::cuda
