// SPDX-License-Identifier: Apache-2.0

// The fabric over UCX, between real processes.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/fabric/oracle.h"
#include "tests/unit/fabric/processes.h"
#include "tests/unit/fabric/worlds.h"

namespace ringmaster::fabric::testing {
namespace {

FabricOptions Options() {
  FabricOptions options;
  options.transport = "ucx";
  options.timeout = seconds(30);
  return options;
}

class UcxWorld : public ::testing::TestWithParam<int> {};

TEST_P(UcxWorld, AllCollectives) {
  const int world = GetParam();
  RunAll(world, Options(), 0, [&](Member& member) -> Status {
    RM_ASSIGN(auto communicator, member.ConnectAll(1));
    std::vector<std::byte> memory(3 * world * 100003 * 4);
    uint64_t seed = 1;
    for (const size_t size : {0, 1, 7, 997, 5003, 100003})
      RM_TRY(CheckAll(*communicator, size, seed++, memory));
    return CheckAllReduce(*communicator, (1 << 18) + 3, seed, memory);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, UcxWorld, ::testing::ValuesIn(Worlds()));

// Members with two different host ids: auto must use the network, and report it.
TEST(Ucx, AutoUsesTheNetworkBetweenHosts) {
  Processes processes(4, [](Member& member) -> Status {
    FabricOptions options;
    options.host_id = member.id() < 2 ? "left" : "right";
    RM_TRY(member.Create(options, 4096));
    RM_TRY(member.Exchange());
    std::vector<std::byte> memory(2 * 4 * 5000 * 4);
    {
      RM_ASSIGN(auto communicator, member.ConnectAll(1));
      if (member.fabric().TransportName().rfind("ucx:", 0) != 0)
        return Error{Code::kInternal, member.fabric().TransportName()};
      RM_TRY(CheckAll(*communicator, 5000, 1, memory));
    }
    // Later the two members on one host share memory.
    const int first = member.id() / 2 * 2;
    RM_ASSIGN(auto communicator, member.Connect(2, {first, first + 1}));
    if (member.fabric().TransportName() != "shm")
      return Error{Code::kInternal, member.fabric().TransportName()};
    return CheckAll(*communicator, 5000, 2, memory);
  });
  processes.Exchange();
  for (int id = 0; id < 4; ++id) EXPECT_EQ(processes.Wait(id), "ok");
}

}  // namespace
}  // namespace ringmaster::fabric::testing
