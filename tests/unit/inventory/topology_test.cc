// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/topology.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace ringmaster::inventory {
namespace {

PciLocation At(int socket, int root, int sw, int bus) {
  return {{"pci" + std::to_string(root), "port" + std::to_string(sw), "switch" + std::to_string(sw),
           "dev" + std::to_string(bus)},
          socket};
}

TEST(Topology, Closeness) {
  const PciLocation gpu = At(0, 1, 1, 1);
  EXPECT_EQ(ClosenessOf(gpu, At(0, 1, 1, 2)), Closeness::kSwitch);
  EXPECT_EQ(ClosenessOf(gpu, At(0, 1, 2, 2)), Closeness::kRoot);
  EXPECT_EQ(ClosenessOf(gpu, At(0, 2, 3, 2)), Closeness::kNumaNode);
  EXPECT_EQ(ClosenessOf(gpu, At(1, 9, 9, 2)), Closeness::kSystem);
  EXPECT_EQ(ClosenessOf(gpu, PciLocation{}), Closeness::kUnknown);
  EXPECT_EQ(ClosenessOf(gpu, At(-1, 9, 9, 2)), Closeness::kUnknown)
      << "a machine that does not report its sockets";
}

TEST(Topology, EachGpuGetsItsOwnNic) {
  // As in a machine with eight GPUs: a NIC next to each GPU, listed in another order.
  std::vector<PciLocation> gpus;
  std::vector<PciLocation> nics(8);
  for (int i = 0; i < 8; ++i) {
    gpus.push_back(At(i / 4, i, i, 1));
    nics[static_cast<size_t>((i * 3) % 8)] = At(i / 4, i, i, 2);
  }
  const std::vector<int> chosen = AssignNics(gpus, nics);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(chosen[static_cast<size_t>(i)], (i * 3) % 8);
}

TEST(Topology, FewNicsAreSharedEvenly) {
  std::vector<PciLocation> gpus;
  for (int i = 0; i < 8; ++i) gpus.push_back(At(i / 4, i, i, 1));
  const std::vector<PciLocation> nics = {At(0, 20, 20, 1), At(0, 21, 21, 1), At(1, 22, 22, 1),
                                         At(1, 23, 23, 1)};
  const std::vector<int> chosen = AssignNics(gpus, nics);
  std::vector<int> users(4, 0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(chosen[i] / 2, static_cast<int>(i / 4)) << "on its own socket";
    ++users[static_cast<size_t>(chosen[i])];
  }
  EXPECT_EQ(users, (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(AssignNics(gpus, {}), std::vector<int>(8, -1));
}

TEST(Topology, AGpuNextToTheOnlyNearNicGetsItFirst) {
  // GPU 0 is far from both NICs; it must not take the one next to GPU 1.
  const std::vector<PciLocation> gpus = {At(1, 5, 5, 1), At(0, 1, 1, 1)};
  const std::vector<PciLocation> nics = {At(0, 1, 1, 2), At(0, 2, 2, 2)};
  EXPECT_EQ(AssignNics(gpus, nics), (std::vector<int>{1, 0}));
}

TEST(Topology, AnEquallyNearFreeNicIsUsedToo) {
  // Two ports on one switch with GPU 0, one with GPU 1, one far from both.
  const std::vector<PciLocation> gpus = {At(0, 1, 1, 1), At(0, 2, 2, 1)};
  const std::vector<PciLocation> nics = {At(1, 9, 9, 1), At(0, 1, 1, 2), At(0, 2, 2, 2), At(0, 1, 1, 3)};
  EXPECT_EQ(NearbyNics(gpus, nics), (std::vector<std::vector<int>>{{1, 3}, {2}}));
  EXPECT_EQ(NearbyNics(gpus, std::vector<PciLocation>(2)), (std::vector<std::vector<int>>(2)))
      << "a machine that hides its PCI bus";
  EXPECT_EQ(NearbyNics(gpus, {}), (std::vector<std::vector<int>>(2)));
}

TEST(Topology, ARingStaysOnASocketAndFollowsNvlink) {
  // Sockets alternate by number.
  std::vector<PciLocation> gpus;
  for (int i = 0; i < 4; ++i) gpus.push_back(At(i % 2, i, i, 1));
  EXPECT_EQ(RingOrder(gpus, {}), (std::vector<int>{0, 1, 3, 2})) << "two crossings instead of four";
  // A ring of links 0-2-1-3-0 across sockets: links count more than sockets.
  const std::vector<std::vector<int>> links = {{0, 0, 2, 2}, {0, 0, 2, 2}, {2, 2, 0, 0}, {2, 2, 0, 0}};
  EXPECT_EQ(RingOrder(gpus, links), (std::vector<int>{0, 2, 1, 3}));
}

TEST(Topology, EqualGpusKeepTheirOrder) {
  const std::vector<std::vector<int>> all(8, std::vector<int>(8, 18));
  std::vector<PciLocation> gpus;
  for (int i = 0; i < 8; ++i) gpus.push_back(At(0, 1, 1, i));
  EXPECT_EQ(RingOrder(gpus, all), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  gpus.resize(16, gpus[0]);
  const std::vector<int> order = RingOrder(gpus, {});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Topology, AnyMachineGivesAPermutation) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    std::vector<PciLocation> gpus(1 + random.Below(12));
    std::vector<PciLocation> nics(random.Below(5));
    const auto any = [&](PciLocation& location) {
      if (random.Chance(0.9))
        location = At(static_cast<int>(random.Below(2)), static_cast<int>(random.Below(4)),
                      static_cast<int>(random.Below(8)), static_cast<int>(random.Below(99)));
    };
    for (PciLocation& location : gpus) any(location);
    for (PciLocation& location : nics) any(location);
    std::vector<bool> seen(gpus.size(), false);
    for (const int one : RingOrder(gpus, {})) {
      ASSERT_FALSE(seen.at(static_cast<size_t>(one))) << "seed " << seed;
      seen[static_cast<size_t>(one)] = true;
    }
    for (size_t g = 0; g < gpus.size(); ++g) {
      const int nic = AssignNics(gpus, nics)[g];
      ASSERT_EQ(nic < 0, nics.empty()) << "seed " << seed;
      ASSERT_LT(nic, static_cast<int>(nics.size())) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ringmaster::inventory
