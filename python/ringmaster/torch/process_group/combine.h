// SPDX-License-Identifier: Apache-2.0

// Reductions in this process, of the types and operations that libringmaster does not reduce itself. Terms
// are combined in the order of ranks, so the result is a function of the data alone.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace ringmaster {

// dst[i] = terms[0][i] op terms[1][i] op ... for `count` elements. dst may equal a term.
using Combiner = void (*)(void* dst, const std::vector<const char*>& terms, size_t count);

namespace combine {

using Op = c10d::ReduceOp::RedOpType;

// 16-bit floats are combined as float, and rounded once.
template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, at::Half> || std::is_same_v<T, at::BFloat16>, float, T>;

template <class T, Op op>
T Apply(T a, T b) {
  constexpr bool kInteger = std::is_integral_v<T>;
  // Integers wrap: unsigned arithmetic of at least 32 bits.
  using Wide = std::conditional_t<kInteger, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, T>;
  if constexpr (std::is_same_v<T, bool>) {
    if constexpr (op == Op::PRODUCT || op == Op::MIN || op == Op::BAND) return a && b;
    if constexpr (op == Op::BXOR) return a != b;
    return a || b;  // SUM, MAX, BOR
  } else if constexpr (op == Op::SUM || op == Op::AVG) {
    return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  } else if constexpr (op == Op::PRODUCT) {
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  } else if constexpr (op == Op::MIN) {
    return b < a || b != b ? b : a;  // NaN wins
  } else if constexpr (op == Op::MAX) {
    return a < b || b != b ? b : a;
  } else if constexpr (op == Op::BAND) {
    return static_cast<T>(a & b);
  } else if constexpr (op == Op::BOR) {
    return static_cast<T>(a | b);
  } else {
    static_assert(op == Op::BXOR);
    return static_cast<T>(a ^ b);
  }
}

template <class T, Op op>
void Combine(void* dst, const std::vector<const char*>& terms, size_t count) {
  using A = Accumulator<T>;
  constexpr size_t kBlock = 1024;  // elements, in the first-level cache
  A sum[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    const T* const first = reinterpret_cast<const T*>(terms[0]) + begin;
    for (size_t i = 0; i < size; ++i) sum[i] = static_cast<A>(first[i]);
    for (size_t r = 1; r < terms.size(); ++r) {
      const T* const term = reinterpret_cast<const T*>(terms[r]) + begin;
      for (size_t i = 0; i < size; ++i) sum[i] = Apply<A, op>(sum[i], static_cast<A>(term[i]));
    }
    T* const out = static_cast<T*>(dst) + begin;
    const A world = static_cast<A>(terms.size());
    for (size_t i = 0; i < size; ++i) {
      if constexpr (op == Op::AVG)
        out[i] = static_cast<T>(sum[i] / world);
      else
        out[i] = static_cast<T>(sum[i]);
    }
  }
}

template <class T>
Combiner ForType(Op op) {
  constexpr bool kFloating = std::is_floating_point_v<Accumulator<T>>;
  switch (op) {
    case Op::SUM:
      return Combine<T, Op::SUM>;
    case Op::PRODUCT:
      return Combine<T, Op::PRODUCT>;
    case Op::MIN:
      return Combine<T, Op::MIN>;
    case Op::MAX:
      return Combine<T, Op::MAX>;
    default:
      break;
  }
  if constexpr (kFloating) {
    if (op == Op::AVG) return Combine<T, Op::AVG>;
  } else {
    if (op == Op::BAND) return Combine<T, Op::BAND>;
    if (op == Op::BOR) return Combine<T, Op::BOR>;
    if (op == Op::BXOR) return Combine<T, Op::BXOR>;
  }
  return nullptr;
}

}  // namespace combine

// Returns nullptr for a combination that has no meaning, such as a bitwise operation on floats.
inline Combiner FindCombiner(at::ScalarType type, c10d::ReduceOp::RedOpType op) {
  switch (type) {
    case at::kFloat:
      return combine::ForType<float>(op);
    case at::kDouble:
      return combine::ForType<double>(op);
    case at::kHalf:
      return combine::ForType<at::Half>(op);
    case at::kBFloat16:
      return combine::ForType<at::BFloat16>(op);
    case at::kChar:
      return combine::ForType<int8_t>(op);
    case at::kByte:
      return combine::ForType<uint8_t>(op);
    case at::kShort:
      return combine::ForType<int16_t>(op);
    case at::kInt:
      return combine::ForType<int32_t>(op);
    case at::kLong:
      return combine::ForType<int64_t>(op);
    case at::kBool:
      return combine::ForType<bool>(op);
    default:
      return nullptr;
  }
}

}  // namespace ringmaster
