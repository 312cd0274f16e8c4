// SPDX-License-Identifier: Apache-2.0

// Products of bfloat16 operands with sums in float, by oneDNN (AMX or AVX512_BF16) on the calling thread
// alone. Keeps the primitive of every shape it has met, since making one costs more than a small product;
// what is kept does not change results. One thread at a time uses an object.
#pragma once

#include <cstdint>
#include <memory>

namespace ringmaster::engine::kernels {

// As Matrix and Product of matmul.h, over bfloat16.
struct MatrixBf16 {
  const uint16_t* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
  const uint16_t* At(int64_t r, int64_t c) const { return data + (transposed ? c * ld + r : r * ld + c); }
};

struct MatmulBf16Args {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  MatrixBf16 a;
  MatrixBf16 b;
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
  bool b_packed = false;  // b lies in strips of one slice (packed.h); its ld and orientation do not count
};

class MatmulBf16 {
 public:
  // Whether this CPU multiplies bfloat16 in hardware.
  static bool Supported();

  MatmulBf16();
  ~MatmulBf16();
  MatmulBf16(MatmulBf16&&) noexcept;
  MatmulBf16& operator=(MatmulBf16&&) noexcept;

  void Run(const MatmulBf16Args& product);
  // Bytes of oneDNN's scratch held now.
  int64_t ScratchBytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void MatmulBf16Reference(const MatmulBf16Args& product);

}  // namespace ringmaster::engine::kernels
