// SPDX-License-Identifier: Apache-2.0

// Helpers of kernel tests: running a kernel in several orders of its threads and comparing the bits, values
// of both activation types, and comparison with a reference. The same tests run by emulation and on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/rng.h"
#include "worker/compute/cuda/kernels/bf16.h"
#if defined(RINGMASTER_TESTS_ON_GPU)
#include "tests/cuda/kernels/gpu_memory.h"
#else
#include "tests/cuda/kernels/emulated_memory.h"
#endif

namespace ringmaster::cuda::kernels {

inline constexpr Stream kStream = nullptr;

template <class... T>
bool SameBits(const std::tuple<std::vector<T>...>& a, const std::tuple<std::vector<T>...>& b) {
  return std::apply(
      [&](const std::vector<T>&... left) {
        return std::apply(
            [&](const std::vector<T>&... right) {
              return (
                  (left.size() == right.size() &&
                   (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0)) &&
                  ...);
            },
            b);
      },
      a);
}

// Calls run() once per order of threads and compares the results; run() launches on fresh memory and returns
// a tuple of vectors. A kernel that lacks a barrier gives different bits in some orders. Returns the result.
template <class Run>
auto InAllOrders(const Run& run) {
  return InSeveralOrders(run, [](const auto& first, const auto& other, const std::string& what) {
    EXPECT_TRUE(SameBits(first, other)) << what;
  });
}

inline std::vector<float> RandomFloats(uint64_t seed, int64_t n, float scale = 1.0f) {
  std::vector<float> values(static_cast<size_t>(n));
  SplitMix64 random(seed);
  for (float& value : values) value = scale * static_cast<float>(2 * random.Uniform() - 1);
  return values;
}

template <class T>
std::vector<T> As(const std::vector<float>& values) {
  std::vector<T> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = FromFloat<T>(values[i]);
  return out;
}
template <class T>
std::vector<float> Floats(const std::vector<T>& values) {
  std::vector<float> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = ToFloat(values[i]);
  return out;
}
// Random values that are exact in T.
template <class T>
std::vector<float> RandomIn(uint64_t seed, int64_t n, float scale = 1.0f) {
  return Floats(As<T>(RandomFloats(seed, n, scale)));
}

// The relative error bound of a result that is rounded to T once.
template <class T>
constexpr float Rounding() {
  return std::is_same_v<T, float> ? 1e-6f : 0x1.02p-8f;
}

// Expects |got - want| <= absolute + relative * |want|, and no NaN.
template <class T>
void ExpectNear(const std::vector<T>& got, const std::vector<float>& want, float absolute, float relative) {
  ASSERT_EQ(got.size(), want.size());
  int wrong = 0;
  for (size_t i = 0; i < got.size() && wrong < 5; ++i) {
    const float value = ToFloat(got[i]);
    if (std::fabs(value - want[i]) <= absolute + relative * std::fabs(want[i])) continue;
    ADD_FAILURE() << "[" << i << "] is " << value << ", should be " << want[i];
    ++wrong;
  }
}

using ActivationTypes = testing::Types<float, Bf16>;

}  // namespace ringmaster::cuda::kernels
