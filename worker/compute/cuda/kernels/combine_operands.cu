// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/combine_operands.h"

#include "worker/compute/cuda/kernels/elementwise.h"

namespace ringmaster::cuda::kernels {
namespace {

__device__ __forceinline__ int32_t Plus(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
__device__ __forceinline__ float Plus(float a, float b) { return __fadd_rn(a, b); }

template <class T>
struct Combine {
  int64_t count;
  int world;
  int rank;
  bool maximum;
  const T* others;
  T* own;

  __device__ T Operand(int r, int64_t i) const {
    if (r == rank) return own[i];
    return others[static_cast<int64_t>(r < rank ? r : r - 1) * count + i];
  }
  // One element at a time: neighbouring threads read neighbouring elements, and rows of `others` are
  // unaligned.
  template <int kCount>
  __device__ void At(int64_t i) const {
    static_assert(kCount == 1);
    T sum = Operand(0, i);
    for (int r = 1; r < world; ++r) {
      const T operand = Operand(r, i);
      if (maximum)
        sum = sum < operand ? operand : sum;
      else
        sum = Plus(sum, operand);
    }
    own[i] = sum;
  }
};

}  // namespace

template <class T>
void CombineOperands(Stream stream, int64_t count, int world, int rank, bool maximum, const T* others,
                     T* own) {
  const Combine<T> combine{count, world, rank, maximum, others, own};
  Launch(ElementsKernel<1, Combine<T>>, Cover(count, kElementThreads), kElementThreads, 0, stream, count,
         combine);
}

template void CombineOperands<int32_t>(Stream, int64_t, int, int, bool, const int32_t*, int32_t*);
template void CombineOperands<float>(Stream, int64_t, int, int, bool, const float*, float*);

}  // namespace ringmaster::cuda::kernels
