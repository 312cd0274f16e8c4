// SPDX-License-Identifier: Apache-2.0

// Runs ringmaster-agent as a process while trainers die, stop or hang.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/unit/agent/rig.h"

namespace ringmaster::agent {
namespace {

using rendezvous::Down;
using rendezvous::Exit;
using rendezvous::Fatal;
using rendezvous::Join;

pid_t PidOf(const Join& join) { return std::stoi(join.address); }

// The "-first" behaviours of fake_trainer wait for this, so that they do not end before the agent has
// connected.
const rendezvous::Prepare kStartFault{1, rendezvous::Urgency::kAbort, false};

// Expects that the first incarnation goes down with `evidence` and that a second one joins under a new id.
Down ExpectDownAndBack(TestCoordinator* coordinator, const std::string& evidence) {
  const Join first = coordinator->Expect<Join>();
  coordinator->Send(kStartFault);
  Down down = coordinator->Expect<Down>();
  EXPECT_EQ(down.member, first.member);
  EXPECT_EQ(down.evidence, evidence);
  const Join second = coordinator->Expect<Join>();
  EXPECT_NE(second.member, first.member);
  EXPECT_NE(second.address, first.address);
  return down;
}

TEST(AgentFaults, AKilledTrainerIsReportedAndReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  ASSERT_TRUE(coordinator.Accept());
  const Join first = coordinator.Expect<Join>();
  ::kill(PidOf(first), SIGKILL);
  Down down = coordinator.Expect<Down>();
  EXPECT_EQ(down.member, first.member);
  // A trainer this small may be reaped before the death watch reports.
  EXPECT_TRUE(down.evidence == "mutex" || down.evidence == "exit") << down.evidence;
  if (down.exit_code == 0) down = coordinator.Expect<Down>();
  EXPECT_EQ(down.member, first.member);
  EXPECT_EQ(down.exit_code, 128 + SIGKILL);
  const Join second = coordinator.Expect<Join>();
  EXPECT_NE(second.member, first.member);
  EXPECT_EQ(Children(agent.pid()), second.address);
}

// A large trainer's death is reported before its memory is freed. On a busy machine the agent may run too
// late to observe the order, so the test has several attempts.
TEST(AgentFaults, TheMutexReportsALargeTrainersDeath) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "ballast 256", {{"AGENT_PROGRAM", HASTY_AGENT}});
  ASSERT_TRUE(coordinator.Accept());
  for (int round = 0; round < 10; ++round) {
    ::kill(PidOf(coordinator.Expect<Join>()), SIGKILL);
    if (coordinator.Expect<Down>().evidence == "mutex") return;
  }
  FAIL() << "the mutex was never first";
}

TEST(AgentFaults, TheTrainerDiesWithItsAgent) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "ignore-signals");
  ASSERT_TRUE(coordinator.Accept());
  const Fd trainer = OpenPid(PidOf(coordinator.Expect<Join>()));
  agent.Signal(SIGKILL);
  EXPECT_TRUE(WaitReadable(trainer.get()));
  EXPECT_TRUE(coordinator.ExpectEnd());
}

TEST(AgentFaults, BothKilledAtOnce) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  ASSERT_TRUE(coordinator.Accept());
  const pid_t pid = PidOf(coordinator.Expect<Join>());
  const Fd trainer = OpenPid(pid);
  ::kill(pid, SIGKILL);
  agent.Signal(SIGKILL);
  EXPECT_TRUE(WaitReadable(trainer.get()));
  EXPECT_TRUE(coordinator.ExpectEnd());
}

TEST(AgentFaults, AStoppedTrainerIsReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "stop-first");
  ASSERT_TRUE(coordinator.Accept());
  ExpectDownAndBack(&coordinator, "stopped");
}

// A stopped program would delay the end of the job by health.startupSeconds.
TEST(AgentFaults, AProgramThatIsStoppedAfterTheLastStepIsKilled) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "", {{"AGENT_WORDS", "train\n--\n" FAKE_TRAINER "\nstop-after-exit"}});
  ASSERT_TRUE(coordinator.Accept());
  const Join join = coordinator.Expect<Join>();
  coordinator.Send(Exit{0, "finished", true, true});
  const Down down = coordinator.Expect<Down>();
  EXPECT_EQ(down.member, join.member);
  EXPECT_EQ(down.evidence, "exit");
  EXPECT_EQ(down.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(down.message.starts_with("killed after the last step: ")) << down.message;
}

TEST(AgentFaults, AHangingTrainerIsReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "hang-first", {{"RINGMASTER_STEP_SECONDS", "1"}});
  ASSERT_TRUE(coordinator.Accept());
  const Down down = ExpectDownAndBack(&coordinator, "hang");
  EXPECT_NE(down.message.find("computing"), std::string::npos) << down.message;
}

TEST(AgentFaults, ATrainerThatNeverStartsIsReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "no-slot-first", {{"RINGMASTER_STARTUP_SECONDS", "1"}});
  ASSERT_TRUE(coordinator.Accept());
  EXPECT_EQ(coordinator.Expect<Down>().evidence, "hang");
  EXPECT_TRUE(coordinator.Expect<Join>().member.ends_with(".2"));
}

TEST(AgentFaults, ATrainerThatSendsGarbageIsReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "garbage-first");
  ASSERT_TRUE(coordinator.Accept());
  ExpectDownAndBack(&coordinator, "corrupt");
}

TEST(AgentFaults, ATrainerThatClosesItsChannelIsReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "close-channel-first");
  ASSERT_TRUE(coordinator.Accept());
  ExpectDownAndBack(&coordinator, "eof");
}

TEST(AgentFaults, ATrainerThatExitsIsReplacedAndItsCodeReported) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "exit-first 71");
  ASSERT_TRUE(coordinator.Accept());
  coordinator.Expect<Join>();
  coordinator.Send(kStartFault);
  Down down = coordinator.Expect<Down>();
  if (down.exit_code == 0) down = coordinator.Expect<Down>();
  EXPECT_EQ(down.exit_code, 71);
  EXPECT_EQ(down.message, "cannot allocate 5.0 MiB") << "its termination message";
  EXPECT_TRUE(coordinator.Expect<Join>().member.ends_with(".2"));
}

TEST(AgentFaults, AnEvictedTrainerIsReplaced) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle");
  ASSERT_TRUE(coordinator.Accept());
  const Join first = coordinator.Expect<Join>();
  const Fd trainer = OpenPid(PidOf(first));
  coordinator.Send(rendezvous::Evict{first.member, "silence"});
  EXPECT_TRUE(WaitReadable(trainer.get()));
  EXPECT_NE(coordinator.Expect<Join>().member, first.member);
}

// Time in which the agent was stopped does not count towards a hang of its trainer.
TEST(AgentFaults, AStoppedAgentDoesNotBlameItsTrainer) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "idle",
                     {{"RINGMASTER_STEP_SECONDS", "1"}, {"RINGMASTER_STARTUP_SECONDS", "1"}});
  ASSERT_TRUE(coordinator.Accept());
  const Join join = coordinator.Expect<Join>();
  agent.Signal(SIGSTOP);
  coordinator.Hang();
  agent.Signal(SIGCONT);
  ASSERT_TRUE(coordinator.Accept());
  EXPECT_EQ(coordinator.Expect<Join>(), join);
}

TEST(AgentFaults, AFatalTrainerEndsTheAgent) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "fatal");
  ASSERT_TRUE(coordinator.Accept());
  EXPECT_EQ(coordinator.Expect<Fatal>().message, "vocabulary mismatch");
  coordinator.Send(Exit{64, "vocabulary mismatch"});
  EXPECT_EQ(agent.Wait(), 64);
  EXPECT_NE(agent.TerminationLog().find("vocabulary mismatch"), std::string::npos);
}

TEST(AgentFaults, ExitCode64AloneIsFatalToo) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "exit 64");
  ASSERT_TRUE(coordinator.Accept());
  const Fatal fatal = coordinator.Expect<Fatal>();
  EXPECT_EQ(fatal.exit_code, 64);
  EXPECT_EQ(fatal.message, "cannot read /data/corpus\nno such folder") << "its last lines";
  coordinator.Send(Exit{64, "failed"});
  EXPECT_EQ(agent.Wait(), 64);
  EXPECT_NE(agent.TerminationLog().find("no such folder"), std::string::npos);
}

TEST(AgentFaults, OrphansAreReaped) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "orphan");
  ASSERT_TRUE(coordinator.Accept());
  const Join join = coordinator.Expect<Join>();
  EXPECT_TRUE(Eventually([&] { return Children(agent.pid()) == join.address; })) << Children(agent.pid());
}

TEST(AgentFaults, FiftyDeathsLeaveNothingBehind) {
  TestCoordinator coordinator;
  AgentProcess agent(coordinator, "orphan", {{"AGENT_PROGRAM", HASTY_AGENT}});
  ASSERT_TRUE(coordinator.Accept());
  Join join = coordinator.Expect<Join>();
  // The death watch starts a moment after the Join.
  const auto settled = [&](int fds, int threads) {
    return Eventually([&] { return OpenFds(agent.pid()) == fds && Threads(agent.pid()) == threads; });
  };
  ASSERT_TRUE(Eventually([&] { return Threads(agent.pid()) == 2; }));
  const int fds = OpenFds(agent.pid());
  for (int i = 0; i < 50; ++i) {
    ::kill(PidOf(join), SIGKILL);
    const Join next = coordinator.Expect<Join>();
    ASSERT_NE(next.member, join.member);
    join = next;
  }
  EXPECT_TRUE(join.member.ends_with(".51")) << join.member;
  EXPECT_TRUE(settled(fds, 2)) << OpenFds(agent.pid()) << " fds, " << Threads(agent.pid()) << " threads";
  EXPECT_TRUE(Eventually([&] { return Children(agent.pid()) == join.address; })) << Children(agent.pid());
}

}  // namespace
}  // namespace ringmaster::agent
