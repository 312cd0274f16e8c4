// SPDX-License-Identifier: Apache-2.0

// General matrix multiplication on a GPU: C = op(A) op(B), or C += op(A) op(B), with an optional epilogue.
// Row-major like worker/compute/engine/kernels/matmul.h; sums are float.
//
// Every shape is prepared once, before the first step. Prepare chooses its algorithm and keeps it: the first
// of the library's candidates, which is the same one in every run, or the fastest of them on random data or
// in an earlier run (Config). Where the library can fuse the epilogue, the fused candidates come before, or
// compete with, the plain product followed by a kernel (epilogue.h).
//
// Determinism: the algorithm determines the bits, so the choices are part of a run's plan; the members of a
// job adopt those of one of them (Choices, Adopt). Equal choices, shapes and operands give equal bits on
// GPUs of one model. No candidate adds in an order that depends on timing.
//
// Not thread-safe: one thread at a time, bound to the device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

enum class DType : uint8_t { kFloat, kBf16 };

// What is applied to the product P = op(A) op(B). Shape of P: (m, n).
enum class Epilogue : uint8_t {
  kNone,          // C = P
  kBias,          // C = P + bias
  kBiasGelu,      // aux = P + bias, C = gelu(aux)
  kGeluGradient,  // C = P * gelu'(aux)
};

// The key of an algorithm. Shapes in memory: A (m, k), or (k, m) when transposed; B (k, n), or (n, k) when
// transposed; C (m, n). lda, ldb, ldc are row strides in elements; 0: contiguous rows.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  DType in = DType::kFloat;   // of A and B
  DType out = DType::kFloat;  // of C, bias and aux
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;  // add to C; only with the epilogues kNone and kBias
  int64_t lda = 0, ldb = 0, ldc = 0;
  auto operator<=>(const GemmShape&) const = default;
};

// Device memory, aligned to 256 bytes.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // (n)
  void* aux = nullptr;         // (m, n), contiguous rows; C then has contiguous rows, too
};

class Gemm {
 public:
  struct Config {
    std::string cache_folder;  // stores choices between runs; empty: not stored
    // Measure several candidates per shape, and keep the fastest; otherwise use the first one that runs.
    bool measure = true;
  };

  // Creates an instance for the calling thread's device. Errors: kUnavailable when the library cannot be
  // loaded.
  static Result<std::unique_ptr<Gemm>> Create(const Config& config);
  virtual ~Gemm() = default;

  // Prepares a shape and chooses its algorithm. Blocks until the device is idle.
  virtual Status Prepare(const GemmShape& shape) = 0;

  // Enqueues the product; works while the stream is being captured. REQUIRES: the shape is prepared.
  virtual void Run(Stream stream, const GemmShape& shape, const GemmOperands& operands) = 0;

  // Returns the choices of all prepared shapes as text that another process can adopt.
  virtual std::string Choices() const = 0;
  // Errors: kInvalid, with the difference, unless GPU model and library are the same.
  virtual Status Adopt(const std::string& choices) = 0;
  // Returns a hash of library, GPU model and choices: equal for processes whose products have equal bits.
  virtual uint64_t Fingerprint() const = 0;

  // Changes whenever the algorithm of a prepared shape was replaced. A graph recorded before
  // (runtime/graph.h) then holds the old algorithm.
  virtual uint64_t Version() const = 0;

  // Returns the measured duration of a prepared shape; 0: not measured.
  virtual double Milliseconds(const GemmShape& shape) const = 0;
  virtual int64_t WorkspaceBytes() const = 0;
};

}  // namespace ringmaster::cuda
