// SPDX-License-Identifier: Apache-2.0

// Every operation below is one IEEE operation with subnormals, as on the CPU (cmake/Compiler.cmake has the
// flags). Intrinsics prevent contraction, so the bits equal those of worker/compute/numerics.
#include "worker/compute/cuda/kernels/numerics.h"

#include "worker/compute/cuda/kernels/elementwise.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::cuda::kernels {
namespace {

using numerics::kBlock;
using numerics::kNotFinite;
using numerics::kUnknown;
using numerics::kZero;

constexpr int kBlockWarps = 8;  // one warp per block of the exact numerics
constexpr int kQuad = 4;
constexpr int kQuads = static_cast<int>(kBlock) / (kWarp * kQuad);

// Returns the smallest e with |value| <= 2^e, given the bits of |value| (worker/compute/numerics/exponent.h).
__device__ __forceinline__ int32_t ExponentOf(uint32_t magnitude) {
  const auto biased = static_cast<int32_t>(magnitude >> 23);
  const uint32_t fraction = magnitude & 0x7fffffU;
  if (biased == 255) return kNotFinite;
  if (biased > 0) return biased - 127 + (fraction != 0 ? 1 : 0);
  if (fraction == 0) return kZero;
  return 32 - __clz(static_cast<int>(fraction - 1)) - 149;
}

// Returns 2^e, a normal float.
__device__ __forceinline__ float FloatPowerOfTwo(int e) {
  return __uint_as_float(static_cast<uint32_t>(e + 127) << 23);
}

__device__ __forceinline__ uint32_t Plus(uint32_t sum, float integer) {
  return sum + static_cast<uint32_t>(__float2int_rn(integer));
}

// Adds values, multiples of the quantum of a limb, to four sums, and subtracts from each what was added.
__device__ __forceinline__ void AddLimb(bool overwrite, int32_t* sums, float (&values)[kQuad]) {
  auto* const at = reinterpret_cast<uint4*>(sums);
  uint4 s = {};
  if (!overwrite) s = *at;
  s.x = Plus(s.x, values[0]);
  s.y = Plus(s.y, values[1]);
  s.z = Plus(s.z, values[2]);
  s.w = Plus(s.w, values[3]);
  *at = s;
  RM_UNROLL
  for (int j = 0; j < kQuad; ++j) values[j] = __fsub_rn(values[j], rintf(values[j]));
}

// Loads four gradients from index `at`; those from `count` on are zero. `aligned`: to sixteen bytes.
__device__ __forceinline__ void LoadGradients(const float* grads, int64_t at, int64_t count, bool aligned,
                                              float (&to)[kQuad]) {
  if (aligned && at + kQuad <= count) {
    Load(grads + at, to);
    return;
  }
  RM_UNROLL
  for (int j = 0; j < kQuad; ++j) to[j] = at + j < count ? grads[at + j] : 0.0f;
}

template <int kLimbs>
__global__ void AccumulateKernel(int64_t blocks, const float* grads, int64_t count, bool aligned,
                                 const int32_t* exponents, int quantum_bits, bool overwrite, int32_t* sums,
                                 int32_t* maxima) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kBlockWarps + threadIdx.y;
  if (block >= blocks) return;
  const int64_t first = block * kBlock + static_cast<int>(threadIdx.x) * kQuad;
  float v[kQuads][kQuad];
  uint32_t magnitude = 0;
  RM_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    LoadGradients(grads, first + q * kWarp * kQuad, count, aligned, v[q]);
    RM_UNROLL
    for (int j = 0; j < kQuad; ++j) {
      const uint32_t bits = __float_as_uint(v[q][j]) & 0x7fffffffU;
      magnitude = bits > magnitude ? bits : magnitude;
    }
  }
  const int32_t top = ExponentOf(__reduce_max_sync(kAllLanes, magnitude));
  const int32_t exponent = exponents[block];
  if (threadIdx.x == 0) maxima[block] = overwrite || top > maxima[block] ? top : maxima[block];
  const bool adds = top != kZero && top <= exponent;
  if (!adds && !overwrite) return;
  // 2^(L - E) is a normal float for every valid exponent.
  const float scale = FloatPowerOfTwo(quantum_bits - (adds ? exponent : 0));
  const int64_t first_sum = first + block * kBlock * (kLimbs - 1);
  RM_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    RM_UNROLL
    for (int j = 0; j < kQuad; ++j) v[q][j] = adds ? __fmul_rn(v[q][j], scale) : 0.0f;
    int32_t* const at = sums + first_sum + q * kWarp * kQuad;
    AddLimb(overwrite, at, v[q]);
    if constexpr (kLimbs == 2) {
      RM_UNROLL
      for (int j = 0; j < kQuad; ++j) v[q][j] = __fmul_rn(v[q][j], FloatPowerOfTwo(quantum_bits));
      AddLimb(overwrite, at + kBlock, v[q]);
    }
  }
}

// Returns 2^e, a normal double.
__device__ __forceinline__ double PowerOfTwo(int e) {
  return __longlong_as_double(static_cast<long long>(e + 1023) << 52);
}

template <int kLimbs>
__global__ void DecodeKernel(int64_t blocks, const int32_t* sums, const int32_t* exponents, int quantum_bits,
                             double scale, float* out) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kBlockWarps + threadIdx.y;
  if (block >= blocks) return;
  const int32_t exponent = exponents[block];
  const double factor =
      exponent == kUnknown ? 0.0 : __dmul_rn(PowerOfTwo(exponent - kLimbs * quantum_bits), scale);
  const int64_t first = block * kBlock + static_cast<int>(threadIdx.x) * kQuad;
  const int32_t* const sum = sums + first + block * kBlock * (kLimbs - 1);
  const double limb = PowerOfTwo(quantum_bits);
  const auto decode = [&](uint32_t high, uint32_t low) {
    auto value = static_cast<double>(static_cast<int32_t>(high));
    if constexpr (kLimbs == 2)
      value = __dadd_rn(__dmul_rn(value, limb), static_cast<double>(static_cast<int32_t>(low)));
    return __double2float_rn(__dmul_rn(value, factor));
  };
  RM_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    const int at = q * kWarp * kQuad;
    const uint4 h = *reinterpret_cast<const uint4*>(sum + at);
    uint4 l = {};
    if constexpr (kLimbs == 2) l = *reinterpret_cast<const uint4*>(sum + at + kBlock);
    const float v[kQuad] = {decode(h.x, l.x), decode(h.y, l.y), decode(h.z, l.z), decode(h.w, l.w)};
    Store(out + first + at, v);
  }
}

constexpr int kSquareLanes = 16;  // as worker/compute/numerics: element i of a block goes to lane i mod 16

// squares[block] = sum of squares of the block; one warp computes two blocks.
__global__ void BlockSquaresKernel(int64_t count, const float* values, double* squares) {
  const int64_t block =
      (static_cast<int64_t>(blockIdx.x) * kBlockWarps + threadIdx.y) * (kWarp / kSquareLanes) +
      threadIdx.x / kSquareLanes;
  const int64_t begin = block * kBlock;
  const int64_t end = begin + kBlock < count ? begin + kBlock : count;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x % kSquareLanes; i < end; i += kSquareLanes) {
    const auto value = static_cast<double>(values[i]);
    sum = __dadd_rn(sum, __dmul_rn(value, value));
  }
  RM_UNROLL
  for (int half = kSquareLanes / 2; half > 0; half /= 2) {
    // Only the lower half is used, as in worker/compute/numerics.
    sum = __dadd_rn(sum, __shfl_down_sync(kAllLanes, sum, static_cast<unsigned>(half), kSquareLanes));
  }
  if (threadIdx.x % kSquareLanes == 0 && begin < count) squares[block] = sum;
}

constexpr int kOrderedThreads = static_cast<int>(numerics::kNormGroup);

// sums[b] = the sum in index order of group b of kOrderedThreads values; with kRoot, the square root of the
// sum of all of them. A block loads values; one thread adds them.
template <bool kRoot>
__global__ void OrderedSumKernel(int64_t n, const double* values, double* sums) {
  RM_SHARED(double, tile, kOrderedThreads);
  const auto thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  const int64_t first = kRoot ? 0 : static_cast<int64_t>(blockIdx.x) * kOrderedThreads;
  const int64_t end = kRoot ? n : first + kOrderedThreads;
  for (int64_t begin = first; begin < end; begin += kOrderedThreads) {
    tile[thread] = begin + thread < n ? values[begin + thread] : 0.0;
    __syncthreads();
    if (thread == 0) {
      RM_UNROLL
      // Adding the zero padding changes no bit.
      for (int i = 0; i < kOrderedThreads; ++i) sum = __dadd_rn(sum, tile[i]);
    }
    __syncthreads();
  }
  if (thread == 0) sums[kRoot ? 0 : blockIdx.x] = kRoot ? sqrt(sum) : sum;
}

struct AddTo {
  const float* values;
  bool overwrite;
  float* sums;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    Load(values + i, v);
    if (!overwrite) {
      float s[kCount];
      Load(sums + i, s);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) v[j] = __fadd_rn(s[j], v[j]);
    }
    Store(sums + i, v);
  }
};

struct ScaleBy {
  float factor;
  const float* x;
  float* out;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float v[kCount];
    Load(x + i, v);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] = __fmul_rn(v[j], factor);
    Store(out + i, v);
  }
};

}  // namespace

void Accumulate(Stream stream, int64_t blocks, const float* grads, int64_t count, const int32_t* exponents,
                int quantum_bits, int limbs, bool overwrite, int32_t* sums, int32_t* maxima) {
  Launch(limbs == 1 ? AccumulateKernel<1> : AccumulateKernel<2>, Cover(blocks, kBlockWarps),
         dim3(kWarp, kBlockWarps), 0, stream, blocks, grads, count, Aligned(0, grads), exponents,
         quantum_bits, overwrite, sums, maxima);
}

void Decode(Stream stream, int64_t blocks, const int32_t* sums, const int32_t* exponents, int quantum_bits,
            int limbs, double scale, float* out) {
  const auto decode = [&](int64_t begin, int64_t end) {
    Launch(limbs == 1 ? DecodeKernel<1> : DecodeKernel<2>, Cover(end - begin, kBlockWarps),
           dim3(kWarp, kBlockWarps), 0, stream, end - begin, sums + begin * limbs * kBlock, exponents + begin,
           quantum_bits, scale, out + begin * kBlock);
  };
  if (limbs == 1 || static_cast<const void*>(out) != sums) {
    decode(0, blocks);
    return;
  }
  // With two limbs, block b is written where block b / 2 was read. So the blocks [n, 2 n) are decoded after
  // those before them, and write nothing that they read. In block 0 a thread writes where only it reads.
  decode(0, blocks < 1 ? blocks : 1);
  for (int64_t n = 1; n < blocks; n *= 2) decode(n, 2 * n < blocks ? 2 * n : blocks);
}

int64_t NormScratch(int64_t count) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  return blocks + (blocks + kOrderedThreads - 1) / kOrderedThreads;
}

void Norm(Stream stream, int64_t count, const float* values, double* norm, double* scratch) {
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  Launch(BlockSquaresKernel, Cover(blocks, kBlockWarps * (kWarp / kSquareLanes)), dim3(kWarp, kBlockWarps), 0,
         stream, count, values, scratch);
  const unsigned groups = Cover(blocks, kOrderedThreads);
  double* const sums = scratch + blocks;
  Launch(OrderedSumKernel<false>, groups, kOrderedThreads, 0, stream, blocks, scratch, sums);
  Launch(OrderedSumKernel<true>, 1, kOrderedThreads, 0, stream, static_cast<int64_t>(groups), sums, norm);
}

void AddFloats(Stream stream, int64_t count, const float* values, bool overwrite, float* sums) {
  ForElements(stream, count, Aligned(0, values, sums), AddTo{values, overwrite, sums});
}

void ScaleFloats(Stream stream, int64_t count, float factor, const float* x, float* out) {
  ForElements(stream, count, Aligned(0, x, out), ScaleBy{factor, x, out});
}

}  // namespace ringmaster::cuda::kernels
