// SPDX-License-Identifier: Apache-2.0

// Matrix product of bfloat16 operands with float accumulation on the calling thread, by oneDNN.
#pragma once

#include <cstdint>
#include <memory>

namespace ringmaster::engine::kernels {

// Like Matrix and MatmulArgs of matmul.h, with bfloat16 operands.
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
  bool b_packed = false;  // b is one packed slice (packed_matrix.h); its ld and `transposed` are ignored
};

// Caches the oneDNN primitive of every shape, because creating one costs more than a small product; the cache
// does not change results. Not thread-safe; one object per thread.
class MatmulBf16 {
 public:
  // Returns whether this CPU multiplies bfloat16 (AVX512_BF16 or AMX; isa.h). On other CPUs the operands are
  // widened to float and multiplied in fp32, which is slower and rounds differently.
  static bool InHardware();

  MatmulBf16();
  ~MatmulBf16();
  MatmulBf16(MatmulBf16&&) noexcept;
  MatmulBf16& operator=(MatmulBf16&&) noexcept;

  void Run(const MatmulBf16Args& args);
  // Returns the bytes of scratch that oneDNN holds for this object.
  int64_t ScratchBytes() const;

 private:
  void RunInSoftware(const MatmulBf16Args& args);

  struct State;
  std::unique_ptr<State> state_;
};

void MatmulBf16Reference(const MatmulBf16Args& args);

}  // namespace ringmaster::engine::kernels
