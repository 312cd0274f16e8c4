// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace ringmaster::engine {
namespace {

TEST(ThreadPool, RunsEveryUnitOnceInEveryRound) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (int round = 0; round < 2000; ++round) {
      const int64_t units = round % 23;
      std::vector<int> ran(static_cast<size_t>(units), 0);
      std::atomic<bool> bad{false};
      pool.Run(units, [&](int64_t unit, int worker) {
        ++ran[static_cast<size_t>(unit)];
        if (worker < 0 || worker >= threads) bad = true;
      });
      ASSERT_FALSE(bad);
      for (const int count : ran) ASSERT_EQ(count, 1) << "threads " << threads << " round " << round;
    }
  }
}

TEST(ThreadPool, OneThreadRunsOnTheCallerInOrder) {
  ThreadPool pool(1);
  std::vector<int64_t> order;
  const auto caller = std::this_thread::get_id();
  pool.Run(5, [&](int64_t unit, int worker) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(worker, 0);
    order.push_back(unit);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace ringmaster::engine
