// The fabric over UCX, between real processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

#include "tests/unit/fabric/oracle.h"
#include "tests/unit/fabric/processes.h"

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

INSTANTIATE_TEST_SUITE_P(Worlds, UcxWorld, ::testing::Range(1, 10));

}  // namespace
}  // namespace ringmaster::fabric::testing
