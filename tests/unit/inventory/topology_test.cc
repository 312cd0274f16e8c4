// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/topology.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace ringmaster::inventory {
namespace {

Place At(int socket, int root, int sw, int bus) {
  return {{"pci" + std::to_string(root), "port" + std::to_string(sw), "switch" + std::to_string(sw),
           "dev" + std::to_string(bus)},
          socket};
}

TEST(Topology, HowNear) {
  const Place gpu = At(0, 1, 1, 1);
  EXPECT_EQ(Between(gpu, At(0, 1, 1, 2)), Closeness::kSwitch);
  EXPECT_EQ(Between(gpu, At(0, 1, 2, 2)), Closeness::kRoot);
  EXPECT_EQ(Between(gpu, At(0, 2, 3, 2)), Closeness::kNumaNode);
  EXPECT_EQ(Between(gpu, At(1, 9, 9, 2)), Closeness::kSystem);
  EXPECT_EQ(Between(gpu, Place{}), Closeness::kUnknown);
  EXPECT_EQ(Between(gpu, At(-1, 9, 9, 2)), Closeness::kUnknown) << "a machine that does not tell its sockets";
}

TEST(Topology, EachGpuItsOwnCard) {
  // As in a machine of eight: a card beside each GPU, listed in another order.
  std::vector<Place> gpus;
  std::vector<Place> cards(8);
  for (int i = 0; i < 8; ++i) {
    gpus.push_back(At(i / 4, i, i, 1));
    cards[static_cast<size_t>((i * 3) % 8)] = At(i / 4, i, i, 2);
  }
  const std::vector<int> chosen = CardsFor(gpus, cards);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(chosen[static_cast<size_t>(i)], (i * 3) % 8);
}

TEST(Topology, FewerCardsThanGpusAreSharedEvenly) {
  std::vector<Place> gpus;
  for (int i = 0; i < 8; ++i) gpus.push_back(At(i / 4, i, i, 1));
  const std::vector<Place> cards = {At(0, 20, 20, 1), At(0, 21, 21, 1), At(1, 22, 22, 1), At(1, 23, 23, 1)};
  const std::vector<int> chosen = CardsFor(gpus, cards);
  std::vector<int> users(4, 0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(chosen[i] / 2, static_cast<int>(i / 4)) << "on its own socket";
    ++users[static_cast<size_t>(chosen[i])];
  }
  EXPECT_EQ(users, (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(CardsFor(gpus, {}), std::vector<int>(8, -1));
}

TEST(Topology, AGpuBesideTheOnlyNearCardGetsItFirst) {
  // GPU 0 is far from both; it must not take the card that GPU 1 sits beside.
  const std::vector<Place> gpus = {At(1, 5, 5, 1), At(0, 1, 1, 1)};
  const std::vector<Place> cards = {At(0, 1, 1, 2), At(0, 2, 2, 2)};
  EXPECT_EQ(CardsFor(gpus, cards), (std::vector<int>{1, 0}));
}

TEST(Topology, WhatIsAsNearAndFreeIsUsedToo) {
  // Two ports on one switch with GPU 0, one with GPU 1, one far from both.
  const std::vector<Place> gpus = {At(0, 1, 1, 1), At(0, 2, 2, 1)};
  const std::vector<Place> cards = {At(1, 9, 9, 1), At(0, 1, 1, 2), At(0, 2, 2, 2), At(0, 1, 1, 3)};
  EXPECT_EQ(CardsNear(gpus, cards), (std::vector<std::vector<int>>{{1, 3}, {2}}));
  EXPECT_EQ(CardsNear(gpus, std::vector<Place>(2)), (std::vector<std::vector<int>>(2)))
      << "a machine that hides its bus";
  EXPECT_EQ(CardsNear(gpus, {}), (std::vector<std::vector<int>>(2)));
}

TEST(Topology, ARingStaysOnASocketAndFollowsNvlink) {
  // Sockets alternate by number.
  std::vector<Place> gpus;
  for (int i = 0; i < 4; ++i) gpus.push_back(At(i % 2, i, i, 1));
  EXPECT_EQ(RingOrder(gpus, {}), (std::vector<int>{0, 1, 3, 2})) << "two crossings instead of four";
  // A ring of links 0-2-1-3-0, across sockets: links go before sockets.
  const std::vector<std::vector<int>> links = {{0, 0, 2, 2}, {0, 0, 2, 2}, {2, 2, 0, 0}, {2, 2, 0, 0}};
  EXPECT_EQ(RingOrder(gpus, links), (std::vector<int>{0, 2, 1, 3}));
}

TEST(Topology, EqualGpusKeepTheirOrder) {
  const std::vector<std::vector<int>> all(8, std::vector<int>(8, 18));
  std::vector<Place> gpus;
  for (int i = 0; i < 8; ++i) gpus.push_back(At(0, 1, 1, i));
  EXPECT_EQ(RingOrder(gpus, all), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  gpus.resize(16, gpus[0]);
  const std::vector<int> order = RingOrder(gpus, {});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Topology, AnyMachineGivesAPermutation) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    std::vector<Place> gpus(1 + random.Below(12));
    std::vector<Place> cards(random.Below(5));
    const auto any = [&](Place& place) {
      if (random.Chance(0.9))
        place = At(static_cast<int>(random.Below(2)), static_cast<int>(random.Below(4)),
                   static_cast<int>(random.Below(8)), static_cast<int>(random.Below(99)));
    };
    for (Place& place : gpus) any(place);
    for (Place& place : cards) any(place);
    std::vector<bool> seen(gpus.size(), false);
    for (const int one : RingOrder(gpus, {})) {
      ASSERT_FALSE(seen.at(static_cast<size_t>(one))) << "seed " << seed;
      seen[static_cast<size_t>(one)] = true;
    }
    for (size_t g = 0; g < gpus.size(); ++g) {
      const int card = CardsFor(gpus, cards)[g];
      ASSERT_EQ(card < 0, cards.empty()) << "seed " << seed;
      ASSERT_LT(card, static_cast<int>(cards.size())) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ringmaster::inventory
