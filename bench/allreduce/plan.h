// SPDX-License-Identifier: Apache-2.0

// The measurement, shared by our program and the MPI one, so that both do exactly the same around the call.
// Every rank rewrites its whole input before each call, since a cached result flatters. Calls are in place,
// results are checked, and the time of a call is that of its slowest rank. The number of samples follows from
// the time of a call, so that a slow setting takes no longer than a fast one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace ringmaster::bench {

inline std::vector<size_t> Sizes(size_t smallest, size_t largest) {
  std::vector<size_t> some;
  for (const size_t bytes :
       {size_t{8}, size_t{64}, size_t{512}, size_t{4} << 10, size_t{16} << 10, size_t{64} << 10,
        size_t{256} << 10, size_t{1} << 20, size_t{4} << 20, size_t{16} << 20, size_t{64} << 20})
    if (bytes >= smallest && bytes <= largest) some.push_back(bytes);
  return some;
}

// For smaller sizes a sample consists of many calls, since one call is too short for the clock.
inline constexpr size_t kSingleFrom = 64 << 10;
inline constexpr double kBudgetUs = 300e3;  // per size: calls and overhead
inline constexpr double kSampleUs = 500;
inline constexpr int kMostCalls = 200;
inline constexpr int kWarmSamples = 4;
inline constexpr int kFewestSamples = 5;
inline constexpr int kMostSamples = 100;

inline double NowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Fills the data with small whole numbers, whose sums are exact in every order. After k calls in place every
// rank holds the sum times world^(k-1), which stays exact for many k only if the input is zero; so batches
// use zeros after the first call's check.
inline void Fill(float* data, size_t count, int rank, int round) {
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>((i * 7 + rank * 13 + round) % 64);
}

inline bool Check(const float* data, size_t count, int world, int round) {
  const size_t step = std::max<size_t>(1, count / 997);
  for (size_t i = 0; i < count; i += step) {
    float want = 0;
    for (int q = 0; q < world; ++q) want += static_cast<float>((i * 7 + q * 13 + round) % 64);
    if (data[i] != want) return false;
  }
  return true;
}

inline void Print(size_t bytes, std::vector<double> slowest) {
  std::sort(slowest.begin(), slowest.end());
  std::printf("%zu %.3f %.3f\n", bytes, slowest.front(), slowest[slowest.size() / 2]);
  std::fflush(stdout);
}

// `all_reduce(float*, count)` and `barrier()` make the calls; `slowest(mine)` returns, on every rank, the
// slowest rank's time of each sample. Returns false when a result was wrong.
template <class AllReduce, class Barrier, class Slowest>
bool Measure(size_t bytes, float* data, int rank, int world, const AllReduce& all_reduce,
             const Barrier& barrier, const Slowest& slowest) {
  const size_t count = bytes / sizeof(float);
  const bool batch = bytes < kSingleFrom;
  bool good = true;
  int round = 0;
  const auto sample = [&](int calls) {
    Fill(data, count, rank, ++round);
    if (batch) {
      all_reduce(data, count);
      good = good && Check(data, count, world, round);
      std::fill(data, data + count, 0.0f);
    }
    barrier();
    const double start = NowUs();
    for (int call = 0; call < calls; ++call) all_reduce(data, count);
    const double us = (NowUs() - start) / calls;
    if (!batch) good = good && Check(data, count, world, round);
    return us;
  };
  // The first samples warm up (connections grow their buffers); the fastest of them determines the number of
  // calls and samples that fit into the budget. All ranks must agree on it.
  double call_us = 0;
  double whole_us = 0;
  for (int warm = 0; warm < kWarmSamples; ++warm) {
    const double begin = NowUs();
    const double us = sample(batch ? 4 : 1);
    if (warm == 0 || us < call_us) call_us = us;
    if (warm == 0 || NowUs() - begin < whole_us) whole_us = NowUs() - begin;
  }
  const std::vector<double> agreed = slowest({call_us, whole_us});
  const int calls = batch ? static_cast<int>(std::clamp(kSampleUs / agreed[0], 1.0, double{kMostCalls})) : 1;
  const double sample_us = std::max(agreed[1], calls * agreed[0]);
  const int samples =
      static_cast<int>(std::clamp(kBudgetUs / sample_us, double{kFewestSamples}, double{kMostSamples}));

  std::vector<double> times;
  for (int s = 0; s < samples; ++s) times.push_back(sample(calls));
  const std::vector<double> all = slowest(times);
  if (rank == 0) Print(bytes, all);
  return good;
}

}  // namespace ringmaster::bench
