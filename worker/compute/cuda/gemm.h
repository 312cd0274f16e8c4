// SPDX-License-Identifier: Apache-2.0

// Matrix products of a GPU: C = op(A) op(B) (+ C) and what follows at once, row-major as the engine's
// products are (worker/compute/engine/kernels/matmul.h), sums in float.
//
// Every shape is made known once, before the first step: its algorithm is then chosen (by measuring the
// library's candidates on random data, or from what an earlier run has stored) and stays. Where the library
// can do what follows within the product, that is measured beside the plain product with a kernel of ours
// behind it. An algorithm is a choice of bits, so the choices are part of a run's fingerprint: members of one
// job take those of one of them (Choices, Adopt). Equal choices, shapes and operands on GPUs of one model
// give equal bits; no candidate adds in an order that depends on timing.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

enum class DType : uint8_t { kFloat, kBf16 };

// What follows the product, P, of [m, n].
enum class Epilogue : uint8_t {
  kNone,          // C = P
  kBias,          // C = P + bias
  kBiasGelu,      // aux = P + bias, C = gelu(aux)
  kGeluGradient,  // C = P * gelu'(aux)
};

// What an algorithm is chosen for. A is [m, k], or [k, m] when transposed, B [k, n] or [n, k]; ld: elements
// from row to row as they lie, 0 for dense ones.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  DType in = DType::kFloat;   // of A and B
  DType out = DType::kFloat;  // of C, the bias and aux
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;  // added to what C holds; with no epilogue but kNone and kBias
  int64_t lda = 0, ldb = 0, ldc = 0;
  auto operator<=>(const GemmShape&) const = default;
};

// Aligned to 256 bytes.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // [n], the same for every row
  void* aux = nullptr;         // [m, n], dense, as C is then
};

class Gemm {
 public:
  struct Config {
    std::string cache_folder;  // where choices are kept between runs; empty: nowhere
    int candidates = 16;       // measured per shape; 1 takes the library's first without measuring
  };

  // For the calling thread's device. kUnavailable when the library cannot be loaded.
  static Result<std::unique_ptr<Gemm>> Create(const Config& config);
  virtual ~Gemm() = default;

  // Makes a shape known and chooses its algorithm. Waits for the device.
  virtual Status Prepare(const GemmShape& shape) = 0;

  // Enqueues, also while the stream is recorded. The shape must be known.
  virtual void Run(Stream stream, const GemmShape& shape, const GemmOperands& operands) = 0;

  // The choices of all known shapes, as text that another process on the same kind of GPU with the same
  // library can adopt; kInvalid says what differs.
  virtual std::string Choices() const = 0;
  virtual Status Adopt(const std::string& choices) = 0;
  // Of library, kind of GPU and choices: equal on processes whose products have equal bits.
  virtual uint64_t Fingerprint() const = 0;

  // Another number whenever the algorithm of a known shape was replaced: what was recorded before
  // (runtime/graph.h) holds the old one.
  virtual uint64_t Version() const = 0;

  // What a known shape's algorithm took when it was measured; 0 when it was not.
  virtual double Milliseconds(const GemmShape& shape) const = 0;
  virtual int64_t WorkspaceBytes() const = 0;
};

}  // namespace ringmaster::cuda
