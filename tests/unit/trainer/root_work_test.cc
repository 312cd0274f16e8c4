// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/root_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "worker/fabric/fabric.h"

namespace ringmaster::trainer {
namespace {

// Runs `work` on rank 0 of three ranks, whose collectives have a deadline of two seconds. Returns each rank's
// status.
std::vector<Status> RunOnThreeRanks(const std::function<void()>& work, Duration period) {
  constexpr int kWorld = 3;
  std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
  std::vector<std::string> addresses;
  for (int r = 0; r < kWorld; ++r) {
    fabrics.push_back(
        fabric::Fabric::Create({.transport = "shm", .timeout = seconds(2), .host_id = ""}).value());
    addresses.push_back(fabrics.back()->Address());
  }
  std::vector<Status> ends(kWorld);
  std::vector<std::thread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] {
      const auto comm = fabrics[r]->Connect({1, r, addresses}).value();
      ends[r] = RunOnRootWithKeepalive(comm.get(), 0, work, period);
      if (ends[r].ok()) ends[r] = comm->Barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// Takes longer than that deadline, like a slow disk.
void TakeLong() {
  const Time end = Now() + seconds(5);
  while (!(Now() >= end)) std::this_thread::sleep_for(milliseconds(10));
}

TEST(RunOnRootWithKeepalive, TheOthersWaitLongerThanTheCollectiveDeadline) {
  std::atomic<int> done{0};
  const auto work = [&] {
    TakeLong();
    ++done;
  };
  for (const Status& end : RunOnThreeRanks(work, milliseconds(50)))
    EXPECT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(done, 1);
}

TEST(RunOnRootWithKeepalive, WithoutAKeepaliveTheDeadlineExpires) {
  std::atomic<int> done{0};
  const auto work = [&] {
    TakeLong();
    ++done;
  };
  const std::vector<Status> ends = RunOnThreeRanks(work, seconds(60));
  EXPECT_EQ(ends[1].error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(ends[2].error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(done, 1) << "the work was not completed";
}

TEST(RunOnRootWithKeepalive, AnExceptionOfTheWorkIsRethrown) {
  const auto fabric =
      fabric::Fabric::Create({.transport = "shm", .timeout = seconds(2), .host_id = ""}).value();
  const auto comm = fabric->Connect({1, 0, {fabric->Address()}}).value();
  const auto work = [] { throw std::bad_alloc(); };
  EXPECT_THROW((void)RunOnRootWithKeepalive(comm.get(), 0, work, milliseconds(50)), std::bad_alloc);
}

}  // namespace
}  // namespace ringmaster::trainer
