// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/combine.h"

#include <algorithm>

#include "worker/fabric/clones.h"
#include "worker/fabric/copy.h"

namespace ringmaster::fabric {
namespace {

constexpr size_t kBlock = 1024;  // elements: two blocks fit into the first-level cache

// Values in receive buffers: at any address, written as bytes.
typedef int32_t LooseInt32 __attribute__((aligned(1), may_alias));
typedef float LooseFloat __attribute__((aligned(1), may_alias));

struct Int32Sum {
  using Type = LooseInt32;
  static int32_t Apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};
struct Int32Max {
  using Type = LooseInt32;
  static int32_t Apply(int32_t a, int32_t b) { return a < b ? b : a; }
};
struct FloatSum {
  using Type = LooseFloat;
  static float Apply(float a, float b) { return a + b; }
};
struct FloatMax {
  using Type = LooseFloat;
  static float Apply(float a, float b) { return a < b ? b : a; }
};

// dst may equal a or b; every element is read before it is written, so iterations are independent.
template <class Op>
inline __attribute__((always_inline)) void Two(typename Op::Type* dst, const typename Op::Type* a,
                                               const typename Op::Type* b, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) dst[i] = Op::Apply(a[i], b[i]);
}

template <class Op>
inline __attribute__((always_inline)) void Three(typename Op::Type* dst, const typename Op::Type* a,
                                                 const typename Op::Type* b, const typename Op::Type* c,
                                                 size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) dst[i] = Op::Apply(Op::Apply(a[i], b[i]), c[i]);
}

template <class Op>
inline __attribute__((always_inline)) void Four(typename Op::Type* dst, const typename Op::Type* a,
                                                const typename Op::Type* b, const typename Op::Type* c,
                                                const typename Op::Type* d, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) dst[i] = Op::Apply(Op::Apply(Op::Apply(a[i], b[i]), c[i]), d[i]);
}

template <class Op>
inline __attribute__((always_inline)) void Many(typename Op::Type* dst, const std::byte* const* sources,
                                                size_t source_count, size_t count) {
  const auto at = [&](size_t s, size_t i) {
    return reinterpret_cast<const typename Op::Type*>(sources[s]) + i;
  };
  if (source_count == 2) return Two<Op>(dst, at(0, 0), at(1, 0), count);
  if (source_count == 3) return Three<Op>(dst, at(0, 0), at(1, 0), at(2, 0), count);
  if (source_count == 4) return Four<Op>(dst, at(0, 0), at(1, 0), at(2, 0), at(3, 0), count);
  typename Op::Type sum[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    Four<Op>(sum, at(0, begin), at(1, begin), at(2, begin), at(3, begin), length);
    for (size_t s = 4; s + 1 < source_count; ++s) Two<Op>(sum, sum, at(s, begin), length);
    Two<Op>(dst + begin, sum, at(source_count - 1, begin), length);
  }
}

RM_CLONES void SumInt32(LooseInt32* dst, const std::byte* const* sources, size_t n, size_t count) {
  Many<Int32Sum>(dst, sources, n, count);
}
RM_CLONES void MaxInt32(LooseInt32* dst, const std::byte* const* sources, size_t n, size_t count) {
  Many<Int32Max>(dst, sources, n, count);
}
RM_CLONES void SumFloat(LooseFloat* dst, const std::byte* const* sources, size_t n, size_t count) {
  Many<FloatSum>(dst, sources, n, count);
}
RM_CLONES void MaxFloat(LooseFloat* dst, const std::byte* const* sources, size_t n, size_t count) {
  Many<FloatMax>(dst, sources, n, count);
}

}  // namespace

void Combiner::Combine(std::byte* dst, std::span<const std::byte* const> sources, size_t count) const {
  CHECK(!sources.empty());
  if (count == 0) return;
  if (sources.size() == 1) {
    if (dst != sources[0]) CopyBytes(dst, sources[0], count * kElementBytes);
    return;
  }
  if (element == Element::kInt32) {
    auto* out = reinterpret_cast<LooseInt32*>(dst);
    (op == ReduceOp::kSum ? SumInt32 : MaxInt32)(out, sources.data(), sources.size(), count);
  } else {
    auto* out = reinterpret_cast<LooseFloat*>(dst);
    (op == ReduceOp::kSum ? SumFloat : MaxFloat)(out, sources.data(), sources.size(), count);
  }
}

void Combiner::Accumulate(std::byte* dst, const std::byte* src, size_t count) const {
  const std::byte* const sources[] = {dst, src};
  Combine(dst, sources, count);
}

}  // namespace ringmaster::fabric
