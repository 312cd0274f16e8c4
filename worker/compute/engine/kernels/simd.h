// SPDX-License-Identifier: Apache-2.0

// Vectors of sixteen float lanes on every CPU: one register of 512 bits, two of 256 or four of 128. The
// number of lanes affects the result (a sum adds lane by lane, then in a fixed tree), so it is the same
// everywhere, and the kernels give equal bits on all instruction sets.
//
// Included only by the kernels that are compiled once per instruction set. Everything here has internal
// linkage, so that the linker cannot merge code compiled for a newer CPU with other code.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#define RM_INLINE inline __attribute__((always_inline))

constexpr int64_t kLanes = 16;
#if defined(__AVX512F__)
constexpr int kPart = 16;
#elif defined(__AVX2__)
constexpr int kPart = 8;
#else
constexpr int kPart = 4;
#endif
constexpr int kParts = 16 / kPart;

typedef float FloatPart __attribute__((vector_size(kPart * 4)));
typedef int32_t IntPart __attribute__((vector_size(kPart * 4)));
typedef uint16_t ShortPart __attribute__((vector_size(kPart * 2)));

struct Floats {
  FloatPart part[kParts];
};

// The lanes that are in memory: all sixteen, or the first `count` of a tail.
struct AllLanes {};
struct SomeLanes {
  int64_t count;
};

RM_INLINE Floats Splat(float value) {
  Floats out;
  for (int p = 0; p < kParts; ++p) out.part[p] = value - FloatPart{};
  return out;
}

RM_INLINE Floats Load(const float* from, AllLanes) {
  Floats out;
  __builtin_memcpy(&out, from, sizeof(out));
  return out;
}

RM_INLINE Floats Load(const float* from, SomeLanes lanes, float fill = 0.0f) {
  float values[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) values[i] = i < lanes.count ? from[i] : fill;
  Floats out;
  __builtin_memcpy(&out, values, sizeof(out));
  return out;
}

RM_INLINE void Store(float* to, const Floats& from, AllLanes) { __builtin_memcpy(to, &from, sizeof(from)); }

RM_INLINE void Store(float* to, const Floats& from, SomeLanes lanes) {
  float values[kLanes];
  __builtin_memcpy(values, &from, sizeof(from));
  for (int64_t i = 0; i < lanes.count; ++i) to[i] = values[i];
}

// Non-temporal store, for values that are not read soon. REQUIRES: the address is a multiple of 64 bytes, and
// FlushStreams is called before another thread reads the values.
#if defined(__x86_64__)
RM_INLINE void Stream(float* to, const Floats& from) {
  for (int p = 0; p < kParts; ++p)
#if defined(__AVX512F__)
    _mm512_stream_ps(to + p * kPart, reinterpret_cast<__m512>(from.part[p]));
#elif defined(__AVX2__)
    _mm256_stream_ps(to + p * kPart, reinterpret_cast<__m256>(from.part[p]));
#else
    _mm_stream_ps(to + p * kPart, reinterpret_cast<__m128>(from.part[p]));
#endif
}
RM_INLINE void FlushStreams() { _mm_sfence(); }
#else
RM_INLINE void Stream(float* to, const Floats& from) { Store(to, from, AllLanes{}); }
RM_INLINE void FlushStreams() {}
#endif

#define RM_LANEWISE(op)                                                    \
  RM_INLINE Floats operator op(const Floats& a, const Floats& b) {         \
    Floats out;                                                            \
    for (int p = 0; p < kParts; ++p) out.part[p] = a.part[p] op b.part[p]; \
    return out;                                                            \
  }
RM_LANEWISE(+)
RM_LANEWISE(-)
RM_LANEWISE(*)
RM_LANEWISE(/)
#undef RM_LANEWISE

RM_INLINE Floats Max(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < kParts; ++p) out.part[p] = a.part[p] > b.part[p] ? a.part[p] : b.part[p];
  return out;
}

RM_INLINE Floats Min(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < kParts; ++p) out.part[p] = a.part[p] < b.part[p] ? a.part[p] : b.part[p];
  return out;
}

// Returns `value` in the lanes where test > 0, else 0.
RM_INLINE Floats WherePositive(const Floats& test, const Floats& value) {
  Floats out;
  for (int p = 0; p < kParts; ++p) out.part[p] = test.part[p] > 0.0f ? value.part[p] : FloatPart{};
  return out;
}

// Returns the sum of the lanes, added in a fixed tree.
RM_INLINE float Sum(const Floats& a) {
  float v[kLanes];
  __builtin_memcpy(v, &a, sizeof(a));
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}

RM_INLINE float Largest(const Floats& a) {
  float v[kLanes];
  __builtin_memcpy(v, &a, sizeof(a));
  float best = v[0];
  for (int64_t i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

// Calls body(i, lanes) for i = 0, 16, ...: with all lanes, then with those of the tail.
template <class Body>
RM_INLINE void ForLanes(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, AllLanes{});
  if (i < n) body(i, SomeLanes{n - i});
}

// The same with separate bodies for whole vectors and for the tail.
template <class Whole, class Tail>
RM_INLINE void ForLanes(int64_t n, Whole&& whole, Tail&& tail) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) whole(i, AllLanes{});
  if (i < n) tail(i, SomeLanes{n - i});
}

// Returns e^x. Reduces x to |r| <= ln(2)/2 with ln(2) in two parts (Cody and Waite), then evaluates the
// Taylor polynomial of degree 7, whose truncation error is below 6e-9; with rounding the relative error is
// below 2.5e-7 (tested against double). Arguments are clamped to [-87.3, 88.3], so the result is never 0,
// infinite or denormal. NaN gives NaN.
RM_INLINE Floats Exp(const Floats& argument) {
  Floats out;
  for (int p = 0; p < kParts; ++p) {
    FloatPart x = argument.part[p];
    const FloatPart low = -87.3f - FloatPart{};
    const FloatPart high = 88.3f - FloatPart{};
    x = x < low ? low : x;
    x = x > high ? high : x;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const FloatPart shifted = x * 1.44269504f + 12582912.0f;
    const FloatPart n = shifted - 12582912.0f;
    const FloatPart r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    FloatPart y = r * (1.0f / 5040.0f) + (1.0f / 720.0f);
    y = y * r + (1.0f / 120.0f);
    y = y * r + (1.0f / 24.0f);
    y = y * r + (1.0f / 6.0f);
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    IntPart bits;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits - (0x4B400000 - 127)) << 23;
    FloatPart power;  // 2^n
    __builtin_memcpy(&power, &bits, sizeof(power));
    out.part[p] = y * power;
  }
  return out;
}

}  // namespace
