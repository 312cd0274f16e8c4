// What is measured, for our program and for the MPI one alike, so that both do exactly the same around the
// call: every rank rewrites its whole input before each call (a result left in cache flatters), in place,
// results checked, time of a call = that of its slowest rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace ringmaster::bench {

struct Case {
  size_t bytes;
  int samples;
  int calls_per_sample;  // many where one call is too short for the clock; the input is then rewritten per
                         // sample
};

inline std::vector<Case> Cases(size_t largest) {
  const std::vector<Case> all = {{8, 60, 200},       {64, 60, 200},      {512, 60, 200},
                                 {4 << 10, 60, 100}, {16 << 10, 60, 20}, {64 << 10, 150, 1},
                                 {256 << 10, 80, 1}, {1 << 20, 50, 1},   {4 << 20, 24, 1},
                                 {16 << 20, 12, 1},  {64 << 20, 6, 1}};
  std::vector<Case> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const Case& c) { return c.bytes <= largest; });
  return some;
}

inline double NowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Small whole numbers: sums are exact in every order. After k calls in place every rank holds the sum times
// world^(k-1), which stays exact for the k used here only when the input is zero; so batches use zeros but
// for the first call's check.
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

inline void Print(const Case& c, std::vector<double> slowest) {
  std::sort(slowest.begin(), slowest.end());
  std::printf("%zu %.3f %.3f\n", c.bytes, slowest.front(), slowest[slowest.size() / 2]);
  std::fflush(stdout);
}

// AllReduce(float*, count) and Barrier() as calls; Gather(mine) -> the slowest rank's time, per sample, on
// rank 0. Returns false when a result was wrong.
template <class AllReduce, class Barrier, class Slowest>
bool Measure(const Case& c, float* data, int rank, int world, const AllReduce& all_reduce,
             const Barrier& barrier, const Slowest& slowest) {
  const size_t count = c.bytes / sizeof(float);
  std::vector<double> times;
  bool good = true;
  for (int sample = -2; sample < c.samples; ++sample) {  // the first two warm up
    Fill(data, count, rank, sample + 2);
    if (c.calls_per_sample > 1) {
      all_reduce(data, count);
      good = good && Check(data, count, world, sample + 2);
      std::fill(data, data + count, 0.0f);
    }
    barrier();
    const double start = NowUs();
    for (int call = 0; call < c.calls_per_sample; ++call) all_reduce(data, count);
    const double end = NowUs();
    if (c.calls_per_sample == 1) good = good && Check(data, count, world, sample + 2);
    if (sample >= 0) times.push_back((end - start) / c.calls_per_sample);
  }
  const std::vector<double> all = slowest(times);
  if (rank == 0) Print(c, all);
  return good;
}

}  // namespace ringmaster::bench
