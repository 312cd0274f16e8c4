// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/root_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "worker/fabric/fabric.h"

namespace ringmaster::trainer {
namespace {

constexpr int kWorld = 3;
constexpr Duration kTimeout = seconds(2);  // of collectives

// Three ranks, threads of this process, whose rank 0 has work.
class WaitForRootTest : public ::testing::Test {
 protected:
  // Runs `done` on rank 0 and returns each rank's status.
  std::vector<Status> Run(const std::function<bool()>& done) {
    std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
    std::vector<std::string> addresses;
    for (int r = 0; r < kWorld; ++r) {
      fabrics.push_back(
          fabric::Fabric::Create(
              {.transport = "shm", .timeout = kTimeout, .host_id = "", .on_wait = [this] { ++waits_; }})
              .value());
      addresses.push_back(fabrics.back()->Address());
    }
    std::vector<Status> ends(kWorld);
    std::vector<std::thread> threads;
    for (int r = 0; r < kWorld; ++r) {
      threads.emplace_back([&, r] {
        Status& end = ends[static_cast<size_t>(r)];
        const auto connected = fabrics[static_cast<size_t>(r)]->Connect({1, r, addresses});
        if (!connected.ok()) {  // the root has already given up
          end = connected.error();
          return;
        }
        const auto& comm = connected.value();
        end = WaitForRoot(comm.get(), 0, &cancel_, done);
        if (end.ok()) end = comm->Barrier();
        if (!end.ok()) fabrics[static_cast<size_t>(r)]->Abort(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }
  // The others have waited for about `timeouts` times the timeout.
  void AwaitWaits(int timeouts) const {
    while (waits_ < 12 * (kWorld - 1) * timeouts) std::this_thread::yield();
  }
  std::atomic<int> waits_{0};
  std::atomic<bool> cancel_{false};
};

TEST_F(WaitForRootTest, TheOthersWaitLongerThanTheTimeoutOfCollectives) {
  BackgroundWork work([this] { AwaitWaits(3); });
  for (const Status& end : Run([&] { return work.Wait(milliseconds(10)); }))
    EXPECT_TRUE(end.ok()) << end.error().message;
}

// An order of the coordinator must be answered within seconds, while a disk may take minutes.
TEST_F(WaitForRootTest, ACancelledRootReturnsWhileItsWorkGoesOn) {
  std::atomic<bool> release{false};
  std::atomic<bool> ended{false};
  BackgroundWork work([&] {
    while (!release) std::this_thread::yield();
    ended = true;
  });
  std::atomic<int> polls{0};
  const std::vector<Status> ends = Run([&] {
    if (++polls == 3) cancel_ = true;
    return work.Wait(milliseconds(1));
  });
  EXPECT_EQ(ends[0].error().code, Code::kCancelled);
  EXPECT_FALSE(ends[1].ok());
  EXPECT_FALSE(ends[2].ok());
  EXPECT_FALSE(ended);
  // The next generation adopts it.
  release = true;
  EXPECT_TRUE(work.Wait(seconds(60)));
  EXPECT_TRUE(ended);
}

TEST(BackgroundWork, AnExceptionOfTheWorkIsRethrown) {
  BackgroundWork work([] { throw std::bad_alloc(); });
  EXPECT_THROW((void)work.Wait(seconds(60)), std::bad_alloc);
}

}  // namespace
}  // namespace ringmaster::trainer
