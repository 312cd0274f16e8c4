// SPDX-License-Identifier: Apache-2.0

// The parts by which the server stays fair: turns between jobs, the rate of messages, what may wait to be
// sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rendezvous/fair_queue.h"
#include "rendezvous/message_rate.h"
#include "rendezvous/outbox.h"

namespace ringmaster::rendezvous {
namespace {

TEST(FairQueue, AJobWithMuchWorkDelaysTheOthersByOneTurn) {
  FairQueue<int> queue;
  for (int i = 0; i < 100; ++i) queue.Push("greedy", i);
  queue.Push("modest", 1000);
  std::vector<int> order;
  while (!queue.empty()) {
    queue.BeginTurn();
    for (int i = 0; i < 10; ++i) {
      if (const auto item = queue.Pop()) order.push_back(*item);
    }
    if (order.size() == 10) queue.Push("modest", 1001);  // work that arrives in another job's turn
    queue.EndTurn();
  }
  ASSERT_EQ(order.size(), 102u);
  EXPECT_EQ(order[10], 1000);
  EXPECT_EQ(order[11], 1001);
  EXPECT_EQ(order[12], 10);
  EXPECT_EQ(order.back(), 99);
}

TEST(MessageRate, ABurstPassesAndThenTheRateCounts) {
  MessageRate rate(10, 5);
  Time now{seconds(100)};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(rate.Wait(now), Duration::zero());
    rate.Spend(now);
  }
  EXPECT_EQ(rate.Wait(now), Duration::zero());
  for (int i = 0; i < 10; ++i) rate.Spend(now);
  const Duration pause = rate.Wait(now);
  EXPECT_GE(pause, seconds(1));
  EXPECT_LT(pause, seconds(2));
  EXPECT_EQ(rate.Wait(now + pause), Duration::zero());
  EXPECT_EQ(rate.Wait(now), Duration::zero()) << "a clock that is behind changes nothing";
}

Outbox::Frame FrameOf(size_t bytes) { return std::make_shared<const std::string>(bytes, 'x'); }

TEST(Outbox, SendsInOrderWhatItWasGiven) {
  Outbox outbox;
  const auto large = std::make_shared<const std::string>(std::string(Outbox::kSmallBytes, 'L') + "!");
  EXPECT_TRUE(outbox.Push("a", std::make_shared<const std::string>("b")));
  EXPECT_TRUE(outbox.Push("c", large));
  EXPECT_TRUE(outbox.Push("", std::make_shared<const std::string>("d")));
  std::string sent;
  while (!outbox.empty()) {
    const size_t bytes = std::min<size_t>(outbox.front().size(), 1000);
    sent += outbox.front().substr(0, bytes);
    outbox.Pop(bytes);
  }
  EXPECT_EQ(sent, "abc" + *large + "d");
}

TEST(Outbox, IsBounded) {
  Outbox own;
  size_t pushed = 0;
  while (own.Push("", FrameOf(1000))) ++pushed;
  EXPECT_LE(pushed, Outbox::kMaxOwnBytes / 1000);
  EXPECT_GE(pushed, Outbox::kMaxOwnBytes / 1000 - 1);
  Outbox shared;
  for (size_t i = 0; i < Outbox::kMaxShared; ++i) EXPECT_TRUE(shared.Push("r", FrameOf(1 << 20)));
  EXPECT_FALSE(shared.Push("r", FrameOf(1 << 20)));
}

// Each slot of a pod that connects again gets the membership.
TEST(Outbox, CopiesOfOneFrameCountOnceUntilAllOfThemAreSent) {
  Outbox outbox;
  const Outbox::Frame membership = FrameOf(1 << 16);
  for (int slot = 0; slot < 8; ++slot) ASSERT_TRUE(outbox.Push("", membership));
  for (int slot = 0; slot < 7; ++slot) outbox.Pop(membership->size());
  EXPECT_TRUE(outbox.Push("", FrameOf(1 << 16)));
  EXPECT_TRUE(outbox.Push("", FrameOf(1 << 16)));
  EXPECT_FALSE(outbox.Push("", FrameOf(1 << 16))) << "the last copy is still counted";
}

}  // namespace
}  // namespace ringmaster::rendezvous
