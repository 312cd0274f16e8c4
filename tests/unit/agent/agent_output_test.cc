// SPDX-License-Identifier: Apache-2.0

// Checks how the agent forwards a trainer's output.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "tests/unit/agent/rig.h"

namespace ringmaster::agent {
namespace {

using rendezvous::Down;
using rendezvous::Join;
using rendezvous::Progress;

TEST(AgentOutput, EveryLineArrivesInOrder) {
  constexpr int kLines = 20'000;
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, fmt::format("lines {}", kLines));
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Progress>();
  std::string expected;
  for (int i = 0; i < kLines; ++i) expected += fmt::format("line {} of {}\n", i, kLines);
  EXPECT_TRUE(Eventually([&] {
    // The agent's own lines are in between.
    std::string lines;
    const std::string all = agent.Output();
    for (size_t at = 0; at < all.size();) {
      const size_t end = std::min(all.find('\n', at), all.size() - 1) + 1;
      if (all.compare(at, 5, "line ") == 0) lines.append(all, at, end - at);
      at = end;
    }
    return lines == expected;
  }));
}

TEST(AgentOutput, UnusualBytesAreKeptAndTheLastLineIsCompleted) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "odd-bytes");
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Down>();
  coordinator.Expect<Down>();  // with its exit code, so the output of the first trainer has been forwarded
  std::string odd = "binary \x01\xff\xfe end\n";
  odd.insert(8, 1, '\0');
  const std::string all = agent.Output();
  EXPECT_NE(all.find(odd), std::string::npos);
  EXPECT_NE(all.find("no newline at the end\n"), std::string::npos);
  EXPECT_GE(std::count(all.begin(), all.end(), 'x'), 100'000);
}

// A stuck log collector must not stop training.
TEST(AgentOutput, AStuckReaderDoesNotStopTraining) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd never_read(ends[0]);
  const Fd write(ends[1]);
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "lines 50000", {}, write.get());
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Progress>();  // after a megabyte of output
  EXPECT_TRUE(coordinator.ExpectPing());
}

TEST(AgentOutput, TheSecretIsNotLogged) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle", {{"RINGMASTER_LOG", "debug"}});
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  EXPECT_TRUE(coordinator.ExpectPing());
  EXPECT_EQ(agent.Output().find(AgentProcess::kSecret), std::string::npos);
}

}  // namespace
}  // namespace ringmaster::agent
