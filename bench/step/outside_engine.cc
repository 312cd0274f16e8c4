// SPDX-License-Identifier: Apache-2.0

#include "bench/step/outside_engine.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/time.h"
#include "worker/compute/numerics/exact.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::bench {

double NumericsSeconds(int64_t elements, int rounds) {
  const auto size = static_cast<size_t>(elements);
  std::vector<float> gradients(size);
  SplitMix64 random(3);
  for (float& g : gradients) g = static_cast<float>(random.Uniform() - 0.5);
  std::vector<int32_t> sums(size);
  std::vector<int32_t> exponents(size / numerics::kBlock, 0);
  std::vector<int32_t> maxima(exponents.size(), numerics::kZero);
  const int bits = numerics::QuantumBits(16);
  double best = std::numeric_limits<double>::max();
  double norm = 0;
  for (int round = 0; round < rounds; ++round) {
    const Time begin = Now();
    numerics::Accumulate(gradients, exponents, bits, true, sums, maxima);
    numerics::Decode(sums, exponents, bits, 1.0, gradients);
    norm += numerics::Norm(gradients);
    best = std::min(best, ToSeconds(Now() - begin));
  }
  CHECK(norm > 0);
  return best;
}

double AllReduceSeconds(int64_t elements, int rounds) {
  constexpr int kRanks = 2;
  const auto size = static_cast<size_t>(elements);
  std::array<std::unique_ptr<fabric::Fabric>, kRanks> fabrics;
  std::array<std::span<int32_t>, kRanks> data;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto made = fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""});
    CHECK(made.ok(), "{}", made.error().message);
    fabrics[rank] = std::move(made).value();
    auto memory = fabrics[rank]->Allocate(size * sizeof(int32_t), "bench");
    CHECK(memory.ok(), "{}", memory.error().message);
    data[rank] = {reinterpret_cast<int32_t*>(memory->data()), size};
    addresses.push_back(fabrics[rank]->Address());
  }
  std::vector<std::array<double, kRanks>> times(static_cast<size_t>(rounds));
  std::array<std::thread, kRanks> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads[rank] = std::thread([&, rank] {
      auto comm = fabrics[rank]->Connect({1, rank, addresses});
      CHECK(comm.ok(), "{}", comm.error().message);
      for (auto& time : times) {
        std::ranges::fill(data[rank], rank + 1);  // as after a backward: every line is this rank's
        CHECK((*comm)->Barrier().ok());
        const Time begin = Now();
        CHECK((*comm)->AllReduce(data[rank], fabric::ReduceOp::kSum).ok());
        time[rank] = ToSeconds(Now() - begin);
        CHECK(data[rank].front() == 3 && data[rank].back() == 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double best = std::numeric_limits<double>::max();
  for (const auto& time : times) best = std::min(best, std::max(time[0], time[1]));
  return best;
}

}  // namespace ringmaster::bench
