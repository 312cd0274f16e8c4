// SPDX-License-Identifier: Apache-2.0

// A fixture for tests of nccl::Domain: trainers as threads, over a FakeLibrary.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/unit/fabric/nccl/fake_library.h"
#include "tests/unit/fabric/nccl/host_for_test.h"
#include "worker/fabric/nccl/domain.h"

namespace ringmaster::fabric::nccl {

// One trainer.
struct Rank {
  std::mutex mutex;  // of exit_reason: several threads may call exit_process
  std::string exit_reason;
  std::atomic<bool> exited = false;

  std::atomic<bool> cancel = false;
  std::unique_ptr<Domain> domain;
  std::unique_ptr<HostForTest> host;
  std::unique_ptr<DeviceCommunicator> communicator;
  Stream stream = nullptr;
  Status status;
};

class NcclDomainTest : public ::testing::Test {
 protected:
  ~NcclDomainTest() override {
    if (library_ != nullptr) library_->Release();
    ranks_.clear();
    if (library_ != nullptr && !expect_leaks_) {
      EXPECT_EQ(library_->alive(), 0);
    }
  }

  void Start(int world, const FakeLibrary::Faults& faults = {}, Limits limits = {}) {
    library_ = std::make_unique<FakeLibrary>(faults);
    for (int r = 0; r < world; ++r) {
      ranks_.push_back(std::make_unique<Rank>());
      Rank& rank = *ranks_.back();
      rank.stream = library_->NewStream();
      DomainOptions options;
      options.communicator.limits = limits;
      options.communicator.record_event = [this](Stream stream) {
        return [this, stream] { return library_->Idle(stream); };
      };
      options.communicator.exit_process = [&rank](const std::string& reason) {
        const std::lock_guard lock(rank.mutex);
        if (!rank.exited) rank.exit_reason = reason;
        rank.exited = true;
      };
      options.gpu = "GPU-" + std::to_string(r);
      options.bus = "0000:0" + std::to_string(r) + ":00.0";
      options.host_id = "one machine";
      auto domain = Domain::Create(library_->api(), options);
      CHECK(domain.ok());
      rank.domain = std::move(*domain);
    }
  }

  // Runs `what` for each of these ranks, on a thread each.
  void OnAll(const std::vector<int>& ranks, const std::function<void(Rank&, int)>& what) {
    std::vector<std::thread> threads;
    for (const int r : ranks) threads.emplace_back([&, r] { what(*ranks_[static_cast<size_t>(r)], r); });
    for (std::thread& thread : threads) thread.join();
  }

  // `cancelled`: before the communicator forms.
  void Connect(const std::vector<int>& ranks, uint64_t generation, bool cancelled = false) {
    const auto meeting = std::make_shared<Meeting>(static_cast<int>(ranks.size()), generation);
    OnAll(ranks, [&](Rank& rank, int r) {
      const auto position = std::find(ranks.begin(), ranks.end(), r) - ranks.begin();
      rank.communicator.reset();
      rank.cancel = cancelled;
      rank.host = std::make_unique<HostForTest>(meeting, static_cast<int>(position));
      auto made = rank.domain->Connect(rank.host.get(), &rank.cancel);
      rank.status = made.ok() ? Ok() : Status(made.error());
      if (made.ok()) rank.communicator = std::move(*made);
    });
  }

  std::span<std::byte> AllocateFromNccl(size_t bytes) const {
    void* memory = nullptr;
    CHECK(library_->api().allocate(&memory, bytes) == kSuccess);
    return {static_cast<std::byte*>(memory), bytes};
  }

  static std::vector<int> First(int count) {
    std::vector<int> ranks(static_cast<size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  // Sums over these ranks; a rank that fails keeps the error in its status.
  void SumOnAll(const std::vector<int>& ranks) {
    OnAll(ranks, [](Rank& rank, int) {
      std::vector<int32_t> data = {1, rank.communicator->rank(), -5};
      rank.status = rank.communicator->AllReduce(data, ReduceOp::kSum, rank.stream);
      if (rank.status.ok()) rank.status = rank.communicator->Wait(rank.stream);
      const int world = rank.communicator->world();
      if (rank.status.ok()) {
        EXPECT_EQ(data, (std::vector<int32_t>{world, world * (world - 1) / 2, -5 * world}));
      }
    });
  }

  // Sums over the ranks that have a communicator.
  void SumOnTheFormed() {
    std::vector<int> formed;
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r]->communicator != nullptr) formed.push_back(static_cast<int>(r));
    SumOnAll(formed);
  }

  std::unique_ptr<FakeLibrary> library_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  bool expect_leaks_ = false;
};

}  // namespace ringmaster::fabric::nccl
