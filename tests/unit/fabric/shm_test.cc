// SPDX-License-Identifier: Apache-2.0

// The shared-memory fabric between real processes.
#include <gtest/gtest.h>

#include <vector>

#include "tests/sanitized.h"
#include "tests/unit/fabric/oracle.h"
#include "tests/unit/fabric/processes.h"
#include "tests/unit/fabric/worlds.h"

namespace ringmaster::fabric::testing {
namespace {

FabricOptions Options() {
  FabricOptions options;
  options.transport = "shm";
  options.timeout = seconds(30);
  return options;
}

class ShmWorld : public ::testing::TestWithParam<int> {};

TEST_P(ShmWorld, AllCollectivesOnSharedAndOnPrivateMemory) {
  const int world = GetParam();
  const std::vector<size_t> sizes = {0, 1, 7, 997, 1024, 5003, 100003};
  RunAll(world, Options(), 2 * world * 100003 * 4, [&](Member& member) -> Status {
    RM_ASSIGN(auto communicator, member.ConnectAll(1));
    std::vector<std::byte> own(member.memory().size());
    uint64_t seed = 1;
    for (const size_t size : sizes) {
      RM_TRY(CheckAll(*communicator, size, seed++, member.memory()));
      RM_TRY(CheckAll(*communicator, size, seed++, own));
      // Half of the members use shared memory, the other half private memory.
      RM_TRY(CheckAll(*communicator, size, seed++, member.id() % 2 == 0 ? member.memory() : std::span(own)));
    }
    return Ok();
  });
}

TEST_P(ShmWorld, LargeAllReduce) {
  const int world = GetParam();
  const size_t elements = (kSanitized ? 1 << 19 : 1 << 20) + 3;  // too large for the direct algorithm
  RunAll(world, Options(), elements * 4, [&](Member& member) -> Status {
    RM_ASSIGN(auto communicator, member.ConnectAll(1));
    std::vector<std::byte> own(elements * 4);
    RM_TRY(CheckAllReduce(*communicator, elements, 1, member.memory()));
    return CheckAllReduce(*communicator, elements, 2, own);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ShmWorld, ::testing::ValuesIn(Worlds()));

}  // namespace
}  // namespace ringmaster::fabric::testing
