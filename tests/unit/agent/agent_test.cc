// SPDX-License-Identifier: Apache-2.0

// Runs ringmaster-agent as a process, without faults.
#include <gtest/gtest.h>
#include <signal.h>

#include "base/file.h"
#include "base/sanitizers.h"
#include "tests/unit/agent/rig.h"

namespace ringmaster::agent {
namespace {

using rendezvous::Exit;
using rendezvous::Join;
using rendezvous::Leave;

TEST(Agent, IntroducesItselfAndJoins) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  const auto hello = coordinator.Accept();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->job, "default/test");
  EXPECT_EQ(hello->pod, "test-1-0");
  EXPECT_EQ(hello->secret, AgentProcess::kSecret);
  EXPECT_EQ(hello->agent.size(), 36u);
  const Join join = coordinator.Expect<Join>();
  EXPECT_EQ(join.member, hello->agent + ".1");
  EXPECT_EQ(Children(agent.pid()), join.address) << "the trainer's address is its pid";
  EXPECT_TRUE(coordinator.ExpectPing());
}

TEST(Agent, ForwardsOrdersAndAnswers) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  ASSERT_TRUE(coordinator.Accept());
  const Join join = coordinator.Expect<Join>();
  coordinator.Send(rendezvous::Prepare{7, rendezvous::Urgency::kAbort, false});
  const auto status = coordinator.Expect<rendezvous::MemberStatus>();
  EXPECT_EQ(status.generation, 7u);
  EXPECT_EQ(status.member, join.member);
}

TEST(Agent, ExitsWithTheCodeFromTheCoordinator) {
  for (const int code : {0, 75}) {
    TestCoordinator coordinator;
    AgentProcess agent(coordinator, "idle");
    ASSERT_TRUE(coordinator.Accept());
    coordinator.Expect<Join>();
    coordinator.Send(Exit{code, "by order"});
    EXPECT_EQ(agent.Wait(), code);
    EXPECT_EQ(agent.TerminationLog().find("by order"), code == 0 ? std::string::npos : 0) << code;
  }
}

// The operator reads it where the coordinator that sent the Exit has ended.
TEST(Agent, LeavesANoteThatTheJobIsFinished) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  coordinator.Send(Exit{0, "finished", true});
  EXPECT_EQ(agent.Wait(), 0);
  EXPECT_EQ(agent.TerminationLog(), std::string(rendezvous::kFinishedNote) + "\n");
}

TEST(Agent, SigtermIsAPlannedLeave) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "ignore-signals");
  ASSERT_TRUE(coordinator.Accept());
  const Join join = coordinator.Expect<Join>();
  agent.Signal(SIGTERM);
  coordinator.Expect<Leave>();
  // The trainer continues until the others no longer need it.
  coordinator.Send(rendezvous::Prepare{7, rendezvous::Urgency::kBoundary, false});
  EXPECT_EQ(coordinator.Expect<rendezvous::MemberStatus>().member, join.member);
  coordinator.Send(Exit{0, "left"});
  EXPECT_EQ(agent.Wait(), 0);
  EXPECT_EQ(agent.TerminationLog(), "");
}

TEST(Agent, ASecondSigtermExitsAtOnce) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "stubborn");
  ASSERT_TRUE(coordinator.Accept());
  const Join join = coordinator.Expect<Join>();
  const Fd trainer = OpenPid(std::stoi(join.address));
  agent.Signal(SIGTERM);
  coordinator.Expect<Leave>();
  agent.Signal(SIGTERM);
  EXPECT_EQ(agent.Wait(), 128 + SIGTERM);
  EXPECT_TRUE(WaitReadable(trainer.get()));
}

// ---- a program of the user as trainer

// Returns the variables of an agent whose trainer is a shell that runs `script`; $FAKE is fake_trainer.
std::map<std::string, std::string> Shell(const std::string& script) {
  return {{"AGENT_WORDS", "train\n--\nsh\n-c\nFAKE=" + std::string(FAKE_TRAINER) + "; " + script},
          {"PATH", "/usr/bin:/bin"}};
}

TEST(AgentOfAProgram, ItsOwnCodeRunsOnAfterTheEndOfTheJob) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "", Shell("$FAKE idle; echo after; sleep 0.5; echo end; exit 3"));
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  coordinator.Send(Exit{0, "finished"});
  EXPECT_EQ(agent.Wait(), 0) << "what follows the job does not count";
  EXPECT_NE(agent.Output().find("after\nend\n"), std::string::npos);
}

TEST(AgentOfAProgram, ASigtermDuringItDoesNotEndIt) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "", Shell("$FAKE idle; echo after; sleep 1; echo end"));
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  coordinator.Send(Exit{0, "finished"});
  ASSERT_TRUE(Eventually([&] { return agent.Output().find("after") != std::string::npos; }));
  agent.Signal(SIGTERM);
  EXPECT_EQ(agent.Wait(), 0);
  EXPECT_NE(agent.Output().find("end\n"), std::string::npos);
}

TEST(AgentOfAProgram, ItHasStopSecondsToEnd) {
  TestCoordinator coordinator;
  auto variables = Shell("$FAKE idle; echo after; sleep 1000");
  variables["RINGMASTER_STOP_SECONDS"] = "1";
  AgentProcess agent(coordinator, "", variables);
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  coordinator.Send(Exit{0, "finished"});
  const Time began = Now();
  EXPECT_EQ(agent.Wait(), 0);
  EXPECT_GE(Now() - began, milliseconds(900));
}

TEST(AgentOfAProgram, AnEndBeforeTheJobsIsExplained) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "", Shell("exit 0"));
  ASSERT_TRUE(coordinator.Accept());
  const auto fatal = coordinator.Expect<rendezvous::Fatal>();
  EXPECT_NE(fatal.message.find("did not open libringmaster"), std::string::npos) << fatal.message;
}

TEST(AgentOfAProgram, AShellPassesTheExitCodeOn) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "", Shell("$FAKE exit-first 3; exit $?"));
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  coordinator.Send(rendezvous::Prepare{7, rendezvous::Urgency::kAbort, false});
  rendezvous::Down down = coordinator.Expect<rendezvous::Down>();
  if (down.exit_code == 0) down = coordinator.Expect<rendezvous::Down>();
  EXPECT_EQ(down.exit_code, 3);
  EXPECT_EQ(down.message, "cannot allocate 5.0 MiB");
  EXPECT_TRUE(coordinator.Expect<Join>().member.ends_with(".2"));
}

TEST(AgentOfAProgram, ItCannotActForTheAgent) {
  TestCoordinator coordinator;
  AgentProcess agent(
      coordinator, "",
      Shell("echo \"<$RINGMASTER_COORDINATOR$RINGMASTER_SECRET_FILE> $PYTHONUNBUFFERED\"; exec "
            "$FAKE idle"));
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  EXPECT_TRUE(Eventually([&] { return agent.Output().find("<> 1\n") != std::string::npos; }));
}

TEST(Agent, TrainingContinuesWithoutACoordinatorAndTheAgentReconnects) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  const auto hello = coordinator.Accept();
  ASSERT_TRUE(hello);
  const Join join = coordinator.Expect<Join>();
  for (int i = 0; i < 3; ++i) {
    coordinator.Hang();
    const auto again = coordinator.Accept();
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, *hello);
    EXPECT_EQ(coordinator.Expect<Join>(), join) << "the same trainer";
  }
}

TEST(Agent, ReadsTheSecretForEveryConnection) {
  TempFolder folder;
  ASSERT_TRUE(WriteFileAtomic(folder.File("token"), "first").ok());
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle", {{"RINGMASTER_SECRET_FILE", folder.File("token")}});
  auto hello = coordinator.Accept();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->secret, "first");
  ASSERT_TRUE(WriteFileAtomic(folder.File("token"), "second").ok());
  coordinator.Hang();
  hello = coordinator.Accept();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->secret, "second");
}

TEST(Agent, FindsTheCoordinatorByName) {
  TestCoordinator coordinator;
  std::string address = coordinator.address();
  address.replace(0, address.find(':'), "localhost");
  AgentProcess agent(coordinator, "idle", {{"RINGMASTER_COORDINATOR", address}});
  EXPECT_TRUE(coordinator.Accept());
}

TEST(Agent, BadConfigurationIsRefusedAndExplained) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle", {{"RINGMASTER_JOB", ""}, {"RINGMASTER_STEP_SECONDS", "soon"}});
  EXPECT_EQ(agent.Wait(), 64);
  for (const std::string& said : {agent.TerminationLog(), agent.Output()}) {
    EXPECT_NE(said.find("RINGMASTER_JOB: is not set"), std::string::npos) << said;
    EXPECT_NE(said.find("RINGMASTER_STEP_SECONDS: must be"), std::string::npos) << said;
  }
}

TEST(Agent, IsSmall) {
#if defined(RINGMASTER_ADDRESS_SANITIZER) || defined(RINGMASTER_THREAD_SANITIZER) || !defined(NDEBUG)
  GTEST_SKIP() << "the budget is for release builds";
#endif
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "lines 20000");
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<rendezvous::Progress>();
  const int64_t steady = RssKib(agent.pid());
  // A generation of 256 members, with addresses of a kilobyte.
  rendezvous::NewGeneration large{9, {}, {}, 0, false};
  for (int i = 0; i < 256; ++i)
    large.members.push_back({fmt::format("m{}", i), "pod", std::string(1024, 'a')});
  coordinator.Send(rendezvous::Prepare{9, rendezvous::Urgency::kAbort, false});
  EXPECT_EQ(coordinator.Expect<rendezvous::MemberStatus>().generation, 9u);
  coordinator.Send(large);
  coordinator.Send(rendezvous::Prepare{10, rendezvous::Urgency::kAbort, false});
  EXPECT_EQ(coordinator.Expect<rendezvous::MemberStatus>().generation, 10u);
  const int64_t rss = RssKib(agent.pid());
  std::printf("agent: %ld KiB, %ld KiB after a large generation\n", steady, rss);
  EXPECT_GT(rss, 0);
  EXPECT_LE(rss, 4096);
}

}  // namespace
}  // namespace ringmaster::agent
