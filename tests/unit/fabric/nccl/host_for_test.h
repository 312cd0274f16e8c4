// SPDX-License-Identifier: Apache-2.0

// The host's communicator between threads, with the operations that nccl/ needs: gather, broadcast, barrier.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric::nccl {

class Meeting {
 public:
  explicit Meeting(int world, uint64_t generation)
      : world_(world), generation_(generation), parts_(static_cast<size_t>(world)) {}
  int world() const { return world_; }
  uint64_t generation() const { return generation_; }

  // Every rank passes its bytes and gets those of all ranks.
  std::vector<std::vector<std::byte>> Exchange(int rank, std::vector<std::byte> own) {
    std::unique_lock lock(mutex_);
    parts_[static_cast<size_t>(rank)] = std::move(own);
    const uint64_t round = round_;
    if (++come_ == world_) {
      come_ = 0;
      ++round_;
      done_ = parts_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
    return done_;
  }

 private:
  const int world_;
  const uint64_t generation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> parts_;
  std::vector<std::vector<std::byte>> done_;
  int come_ = 0;
  uint64_t round_ = 0;
};

class HostForTest : public Communicator {
 public:
  HostForTest(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return meeting_->world(); }
  uint64_t generation() const override { return meeting_->generation(); }

  Status AllGather(std::span<std::byte> data) override {
    const size_t share = data.size() / static_cast<size_t>(world());
    const auto own = data.subspan(share * static_cast<size_t>(rank_), share);
    const auto all = meeting_->Exchange(rank_, {own.begin(), own.end()});
    size_t at = 0;
    for (const auto& part : all)
      for (const std::byte byte : part) data[at++] = byte;
    return Ok();
  }
  Status Broadcast(std::span<std::byte> data, int root) override {
    const auto all = meeting_->Exchange(rank_, {data.begin(), data.end()});
    std::copy(all[static_cast<size_t>(root)].begin(), all[static_cast<size_t>(root)].end(), data.begin());
    return Ok();
  }
  Status Barrier() override {
    (void)meeting_->Exchange(rank_, {});
    return Ok();
  }

  Status AllReduce(std::span<int32_t>, ReduceOp) override { return Never(); }
  Status AllReduce(std::span<float>, ReduceOp) override { return Never(); }
  Status ReduceScatter(std::span<int32_t>, ReduceOp) override { return Never(); }
  Status ReduceScatter(std::span<float>, ReduceOp) override { return Never(); }
  Status Reduce(std::span<int32_t>, ReduceOp, int) override { return Never(); }
  Status Reduce(std::span<float>, ReduceOp, int) override { return Never(); }
  Status AllToAll(std::span<const std::byte>, std::span<std::byte>) override { return Never(); }
  Status Send(std::span<const std::byte>, int) override { return Never(); }
  Status Receive(std::span<std::byte>, int) override { return Never(); }

 private:
  static Status Never() {
    CHECK(false, "gradients on the host's communicator");
    return Ok();
  }
  const std::shared_ptr<Meeting> meeting_;
  const int rank_;
};

}  // namespace ringmaster::fabric::nccl
