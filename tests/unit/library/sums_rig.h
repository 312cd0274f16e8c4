// SPDX-License-Identifier: Apache-2.0

// Ranks that sum gradients, each with its own fabric and device; they are threads of one process. For tests
// of GradientSums on any device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "worker/compute/device/host_gradient_device.h"
#include "worker/fabric/fabric.h"
#include "worker/library/gradient_sums.h"

namespace ringmaster::library {

using Outcome = GradientSums::Outcome;
using device::GradientDevice;

inline constexpr int kMicroBatches = 8;
// The second tensor spans blocks and ends within one, the last one is smaller than a block.
inline const std::vector<Tensor> kTensors = {{"a", 1024}, {"b", 2500}, {"statistic", 70, false}, {"c", 3}};

// The gradient of a tensor in a micro-batch: a pure function of both, as a program's is.
inline std::vector<float> Gradient(int tensor, int v) {
  SplitMix64 rng(static_cast<uint64_t>(tensor * 1000 + v));
  std::vector<float> values(static_cast<size_t>(kTensors[static_cast<size_t>(tensor)].elements));
  for (float& value : values)
    value = (static_cast<float>(rng.Next() % 20001) - 10000.0f) *
            std::ldexp(1.0f, static_cast<int>(rng.Next() % 20) - 24);
  return values;
}

using OpenDevice = std::function<std::unique_ptr<GradientDevice>()>;

inline std::unique_ptr<GradientDevice> OpenHost() {
  return std::make_unique<device::HostGradientDevice<GradientDevice>>();
}

class Rank {
 public:
  Rank(GradientSums::Options options, const OpenDevice& open)
      : fabric(fabric::Fabric::Create({.transport = "shm", .host_id = ""}).value()), device(open()) {
    options.tensors = kTensors;
    options.micro_batches = kMicroBatches;
    sums = GradientSums::Create(fabric.get(), device.get(), options).value();
    for (const Tensor& tensor : kTensors)
      memory_.push_back(Floats(device->Allocate(Bytes(tensor.elements), tensor.name).value()));
  }

  // Connects the ranks of a generation. `cancel` outlives the attempts.
  void Connect(uint64_t generation, int rank, const std::vector<std::string>& addresses) {
    Disconnect();
    comm_ = fabric->Connect({generation, rank, addresses}).value();
    device_comm_ = device->Collectives(comm_.get(), &cancel_).value();
  }
  void Disconnect() {
    device_comm_.reset();
    comm_.reset();
  }
  trainer::Communicators comms() const { return {comm_.get(), device_comm_.get()}; }

  Status Begin(uint64_t version, int first, int end) { return sums->Begin(comms(), version, first, end); }
  // Adds values of the host's memory, as a program that computes on the device would.
  Status Add(int tensor, const std::vector<float>& values) {
    const std::span<float> memory = memory_[static_cast<size_t>(tensor)];
    std::ranges::copy(values, memory.begin());  // the memory of an emulated GPU is ordinary memory
    return sums->Add(tensor, memory.first(values.size()));
  }
  void ComputeShare(int first, int end, int* computed = nullptr) {
    for (int v = first; v < end; ++v) {
      if (!sums->BeginMicroBatch(v)) continue;
      const std::optional<double> weight =
          weights.empty() ? std::nullopt : std::optional(weights[static_cast<size_t>(v)]);
      for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor) {
        std::vector<float> values = Gradient(tensor, v);
        if (weight && kTensors[static_cast<size_t>(tensor)].in_norm) {
          if (*weight == 0) continue;
          for (float& value : values) value *= static_cast<float>(*weight);
        }
        ASSERT_TRUE(Add(tensor, values).ok());
      }
      ASSERT_TRUE(sums->EndMicroBatch(weight.value_or(1) / (v + 3), weight).ok());
      if (computed != nullptr) ++*computed;
    }
  }
  // Memory of the device, with the shape of a tensor.
  std::span<float> memory(int tensor) { return memory_[static_cast<size_t>(tensor)]; }
  std::vector<float> Read(int tensor) {
    const std::span<float> memory = memory_[static_cast<size_t>(tensor)];
    std::ranges::fill(memory, 7.0f);
    EXPECT_TRUE(sums->Read(tensor, memory).ok());
    EXPECT_TRUE(device->Sync().ok());
    return {memory.begin(), memory.end()};
  }

  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<GradientDevice> device;
  std::unique_ptr<GradientSums> sums;
  std::vector<double> weights;  // by micro-batch; empty: they have none

 private:
  static size_t Bytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }
  static std::span<float> Floats(std::span<std::byte> bytes) { return trainer::SpanOf<float>(bytes); }

  std::atomic<bool> cancel_{false};
  std::vector<std::span<float>> memory_;  // of the device, one gradient per tensor
  std::unique_ptr<fabric::Communicator> comm_;
  std::unique_ptr<fabric::AsyncCommunicator> device_comm_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

inline Ranks MakeRanks(int world, const GradientSums::Options& options, const OpenDevice& open = OpenHost) {
  Ranks ranks;
  for (int r = 0; r < world; ++r) ranks.push_back(std::make_unique<Rank>(options, open));
  return ranks;
}

inline std::vector<std::string> AddressesOf(const Ranks& ranks) {
  std::vector<std::string> addresses;
  for (const auto& rank : ranks) addresses.push_back(rank->fabric->Address());
  return addresses;
}

struct Seen {
  std::vector<std::vector<float>> gradients;
  double loss = 0;
  double norm = 0;
  double weight = 0;
  std::vector<int32_t> exponents;
  bool operator==(const Seen&) const = default;
};

// What a rank has after Reduce.
inline Seen See(Rank& rank, const GradientSums::Reduced& reduced) {
  Seen seen;
  seen.loss = reduced.loss;
  seen.norm = reduced.norm;
  seen.weight = reduced.weight;
  for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor)
    seen.gradients.push_back(rank.Read(tensor));
  rank.sums->Commit();
  seen.exponents.assign(rank.sums->exponents().begin(), rank.sums->exponents().end());
  return seen;
}

// Takes a step with all ranks, repeating it as long as it asks for that, and returns what each rank has.
inline std::vector<Seen> TakeStep(const Ranks& ranks, uint64_t generation, int* repeats = nullptr) {
  const std::vector<std::string> addresses = AddressesOf(ranks);
  const int world = static_cast<int>(ranks.size());
  std::vector<Seen> seen(ranks.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = *ranks[static_cast<size_t>(r)];
      rank.Connect(generation, r, addresses);
      const int first = kMicroBatches * r / world;
      const int end = kMicroBatches * (r + 1) / world;
      while (true) {
        ASSERT_TRUE(rank.Begin(1, first, end).ok());
        rank.ComputeShare(first, end);
        const auto reduced = rank.sums->Reduce([] { return false; });
        ASSERT_TRUE(reduced.ok()) << reduced.error().message;
        if (reduced->outcome == Outcome::kRepeat) {
          if (r == 0 && repeats != nullptr) ++*repeats;
          continue;
        }
        ASSERT_EQ(reduced->outcome, Outcome::kReduced);
        seen[static_cast<size_t>(r)] = See(rank, *reduced);
        break;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

// Takes the second step of a rank whose share grows from four micro-batches to all: when the other worker is
// lost, two are complete, and the third is in part in the sums.
inline Seen TakeInterruptedStep(Rank& rank, const std::vector<std::string>& addresses, int* computed) {
  rank.Connect(2, 0, addresses);
  EXPECT_TRUE(rank.Begin(2, 2, 6).ok());
  rank.ComputeShare(2, 4, computed);
  EXPECT_TRUE(rank.sums->BeginMicroBatch(4));
  EXPECT_TRUE(rank.Add(1, Gradient(1, 4)).ok());
  rank.sums->Abandon();
  rank.Connect(3, 0, addresses);
  rank.sums->ResetAttempts();
  EXPECT_TRUE(rank.Begin(2, 0, kMicroBatches).ok());
  rank.ComputeShare(0, kMicroBatches, computed);
  const auto reduced = rank.sums->Reduce([] { return false; });
  EXPECT_TRUE(reduced.ok() && reduced->outcome == Outcome::kReduced);
  return reduced.ok() ? See(rank, *reduced) : Seen();
}

// Takes the first step, in which two micro-batches have ones as the gradient of the first tensor, and votes
// for a stop. REQUIRES: Connect.
inline GradientSums::Reduced TakeStepOfFirstTensor(Rank& rank) {
  while (true) {
    EXPECT_TRUE(rank.Begin(1, 0, kMicroBatches).ok());
    for (int v = 0; v < kMicroBatches; ++v) {
      EXPECT_TRUE(rank.sums->BeginMicroBatch(v));
      if (v < 2) {
        EXPECT_TRUE(rank.Add(0, std::vector<float>(1024, 1.0f)).ok());
      }
      EXPECT_TRUE(rank.sums->EndMicroBatch(0).ok());
    }
    const auto reduced = rank.sums->Reduce([] { return true; });
    EXPECT_TRUE(reduced.ok());
    if (!reduced.ok() || reduced->outcome != Outcome::kRepeat)
      return reduced.ok() ? *reduced : GradientSums::Reduced();
  }
}

// Attempts the first step, in which a value of the last tensor is no number. REQUIRES: Connect.
inline GradientSums::Reduced TakeStepWithNan(Rank& rank) {
  EXPECT_TRUE(rank.Begin(1, 0, kMicroBatches).ok());
  for (int v = 0; v < kMicroBatches; ++v) {
    EXPECT_TRUE(rank.sums->BeginMicroBatch(v));
    std::vector<float> values(3, 1.0f);
    if (v == 5) values[1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(rank.Add(3, values).ok());
    EXPECT_TRUE(rank.sums->EndMicroBatch(0).ok());
  }
  const auto reduced = rank.sums->Reduce([] { return false; });
  EXPECT_TRUE(reduced.ok());
  return reduced.ok() ? *reduced : GradientSums::Reduced();
}

}  // namespace ringmaster::library
