// SPDX-License-Identifier: Apache-2.0

// What all members conclude from their cards.
#include "worker/fabric/nccl/plan.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ringmaster::fabric::nccl {
namespace {

std::vector<Card> Cards(int world) {
  std::vector<Card> cards(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) {
    Card& card = cards[static_cast<size_t>(r)];
    card.gpu = KeyOf("GPU-" + std::to_string(r));
    card.bus = KeyOf("bus " + std::to_string(r));
    card.host = KeyOf("host");
    card.version = 22809;
    card.parent = 5;
    card.parent_rank = r;
    card.parent_world = world;
  }
  return cards;
}

TEST(NcclPlan, OnlyLossesInTheOldOrderShrink) {
  std::vector<Card> cards = Cards(5);
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kFresh) << "nobody is missing";
  cards.erase(cards.begin() + 3);
  cards.erase(cards.begin());
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kShrink);
  EXPECT_EQ(MakePlan(cards)->excluded, (std::vector<int>{0, 3}));
  std::swap(cards[0], cards[1]);
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kFresh) << "in another order";
  std::swap(cards[0], cards[1]);
  cards[2].parent = 0;
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kFresh) << "one could not keep its own";
  cards[2].parent = 4;
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kFresh) << "one is of another generation";
  EXPECT_EQ(MakePlan(std::span(cards).first(1))->way, Plan::Way::kAlone);
}

// `old` members of generation 5, and newcomers behind them.
std::vector<Card> Grown(int old, int world) {
  std::vector<Card> cards = Cards(world);
  for (int r = 0; r < world; ++r) {
    Card& card = cards[static_cast<size_t>(r)];
    card.parent = r < old ? 5 : 0;
    card.parent_rank = r < old ? r : 0;
    card.parent_world = r < old ? old : 0;
    card.may_grow = r < old ? 1 : 0;
  }
  return cards;
}

TEST(NcclPlan, OnlyNewcomersBehindAllOthersGrow) {
  const auto way = [](const std::vector<Card>& cards) { return MakePlan(cards)->way; };
  EXPECT_EQ(way(Grown(3, 5)), Plan::Way::kGrow);
  EXPECT_EQ(way(Grown(2, 3)), Plan::Way::kGrow);
  EXPECT_EQ(way(Grown(3, 3)), Plan::Way::kFresh) << "nobody comes";
  std::vector<Card> cards = Grown(3, 5);
  std::swap(cards[0], cards[1]);
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "in another order";
  cards = Grown(3, 5);
  std::swap(cards[2], cards[3]);
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "one comes in between";
  cards = Grown(3, 5);
  std::swap(cards[0], cards[4]);
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "one comes first";
  cards = Grown(3, 5);
  cards.erase(cards.begin() + 1);
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "one was lost at the same time";
  cards = Grown(3, 5);
  cards.erase(cards.begin() + 2);
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "the last one was";
  cards = Grown(3, 5);
  cards[1].parent = 0;
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "one could not keep its own";
  cards = Grown(3, 5);
  cards[2].parent = 4;
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "one is of another generation";
  cards = Grown(3, 5);
  cards[2].parent_world = 4;
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "they do not agree on its size";
  cards = Grown(3, 5);
  cards[4].parent = 5;
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "a newcomer is none";
  cards = Grown(3, 5);
  cards[1].may_grow = 0;
  EXPECT_EQ(way(cards), Plan::Way::kFresh) << "one was revoked";
}

TEST(NcclPlan, WhatNcclCannotDo) {
  std::vector<Card> cards = Cards(3);
  cards[2].gpu = cards[0].gpu;
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kNone);
  EXPECT_NE(MakePlan(cards)->why_none.find("ranks 0 and 2 share a GPU"), std::string::npos);
  cards = Cards(3);
  cards[1].bus = cards[0].bus;
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kNone);
  EXPECT_EQ(MakePlan(cards)->why_none, "ranks 0 and 1 have instances (MIG) of one GPU, which NCCL refuses");
  cards[1].host = KeyOf("other");
  EXPECT_EQ(MakePlan(cards)->way, Plan::Way::kFresh) << "the same place on another machine";
  cards = Cards(3);
  cards[1].version = 0;
  EXPECT_EQ(MakePlan(cards)->why_none, "rank 1 has no NCCL");
  cards = Cards(3);
  cards[0].version = 0;
  EXPECT_EQ(MakePlan(cards)->why_none, "rank 0 has no NCCL");
  cards = Cards(3);
  cards[1].version = 22703;
  ASSERT_FALSE(MakePlan(cards).ok());
  EXPECT_EQ(MakePlan(cards).error().message,
            "rank 0 has NCCL 2.28.9 and rank 1 has 2.27.3: use one image for all workers");
  cards = Cards(3);
  cards[1].host = KeyOf("other");
  EXPECT_FALSE(MakePlan(cards)->one_host);
}

TEST(NcclPlan, MemoryIsRegisteredEverywhereOrNowhere) {
  std::vector<Card> cards = Cards(3);
  for (Card& card : cards) card.own_memory = 1;
  EXPECT_TRUE(MakePlan(cards)->register_memory);
  for (const size_t other : {0, 1, 2}) {
    cards[other].own_memory = 0;
    EXPECT_FALSE(MakePlan(cards)->register_memory) << other;
    cards[other].own_memory = 1;
  }
}

}  // namespace
}  // namespace ringmaster::fabric::nccl
