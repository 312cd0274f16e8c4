// SPDX-License-Identifier: Apache-2.0

// Starts, watches and kills trainer processes without an agent.
#include "worker/agent/trainer/trainer_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/unit/agent/rig.h"

namespace ringmaster::agent {
namespace {

std::vector<std::string> Command(const std::string& behaviour, int number = 0) {
  return {FAKE_TRAINER, behaviour, std::to_string(number)};
}

// Starts a trainer and waits for its Join.
std::unique_ptr<TrainerProcess> StartJoined(const std::vector<std::string>& command) {
  auto started = TrainerProcess::Start({.words = command}, "agent.1");
  CHECK(started.ok(), "{}", started.error().message);
  std::unique_ptr<TrainerProcess> trainer = std::move(started).value();
  CHECK(WaitReadable(trainer->channel().fd()));
  CHECK(trainer->channel().Receive().ok());
  auto message = trainer->channel().Next();
  CHECK(message.ok() && message.value() && std::holds_alternative<rendezvous::Join>(*message.value()));
  CHECK(trainer->StartDeathWatchWhenReady().ok());
  return trainer;
}

int Reap(const TrainerProcess& trainer) {
  int status = 0;
  ::waitpid(trainer.pid(), &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool IsReadable(int fd) { return WaitReadable(fd, Duration::zero()); }

TEST(TrainerProcess, TheDeathWatchDetectsAKill) {
  auto trainer = StartJoined(Command("idle"));
  ASSERT_GE(trainer->death_fd(), 0);
  EXPECT_FALSE(IsReadable(trainer->death_fd()));
  trainer->Kill();
  EXPECT_TRUE(WaitReadable(trainer->death_fd()));
  EXPECT_EQ(Reap(*trainer), 128 + SIGKILL);
}

TEST(TrainerProcess, ANormalExitIsDetectedTheSameWay) {
  auto trainer = StartJoined(Command("exit-first", 3));
  ASSERT_TRUE(trainer->channel().Send(rendezvous::Ping{}).ok());
  EXPECT_TRUE(WaitReadable(trainer->death_fd()));
  EXPECT_EQ(Reap(*trainer), 3);
}

// The purpose of the robust mutex: freeing a large trainer's memory takes long, and all other signs of its
// death come afterwards. On a busy machine the test may wake up too late to observe the order, but it must
// never observe the reverse.
TEST(TrainerProcess, TheDeathWatchIsFasterThanPidfdAndSocketForALargeTrainer) {
  constexpr int kMebibytes = 512;
  int ahead = 0;
  for (int round = 0; round < 10 && ahead == 0; ++round) {
    auto trainer = StartJoined(Command("ballast", kMebibytes));
    ASSERT_GT(RssKib(trainer->pid()), kMebibytes * 1024);
    const Fd ended = OpenPid(trainer->pid());
    pollfd events[] = {
        {trainer->death_fd(), POLLIN, 0}, {ended.get(), POLLIN, 0}, {trainer->channel().fd(), POLLIN, 0}};
    trainer->Kill();
    ASSERT_GT(::poll(events, 3, static_cast<int>(ToMs(kPatience))), 0);
    const bool by_mutex = events[0].revents != 0;
    const bool by_others = events[1].revents != 0 || events[2].revents != 0;
    EXPECT_TRUE(by_mutex) << "a socket or the pidfd was first";
    if (by_mutex && !by_others) ++ahead;
    Reap(*trainer);
  }
  EXPECT_GT(ahead, 0) << "the mutex was never seen strictly first";
}

// The control for the test above: without a death watch the first sign of the same death is the pidfd or the
// socket, when the memory has already been freed.
TEST(TrainerProcess, WithoutTheDeathWatchTheMemoryIsFreedFirst) {
  auto started = TrainerProcess::Start({.words = Command("ballast", 512)}, "agent.1");
  ASSERT_TRUE(started.ok());
  TrainerProcess& trainer = **started;
  ASSERT_TRUE(WaitReadable(trainer.channel().fd()));
  ASSERT_TRUE(trainer.channel().Receive().ok());
  EXPECT_EQ(trainer.death_fd(), -1);
  trainer.Kill();
  ASSERT_TRUE(WaitReadable(trainer.channel().fd()));
  EXPECT_EQ(RssKib(trainer.pid()), 0);
  Reap(trainer);
}

TEST(TrainerProcess, StopsAreDetected) {
  auto trainer = StartJoined(Command("idle"));
  EXPECT_FALSE(trainer->ReadStopped().by_signal);
  ::kill(trainer->pid(), SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return trainer->ReadStopped().by_signal; }));
  EXPECT_FALSE(IsReadable(trainer->death_fd()));
  ::kill(trainer->pid(), SIGCONT);
  EXPECT_TRUE(Eventually([&] { return !trainer->ReadStopped().by_signal; }));
  trainer->Kill();
  Reap(*trainer);
}

TEST(TrainerProcess, LeadsAProcessGroupAndHasNoSecret) {
  ::setenv("RINGMASTER_SECRET_FILE", "/somewhere/secret", 1);
  auto trainer = StartJoined(Command("idle"));
  ::unsetenv("RINGMASTER_SECRET_FILE");
  EXPECT_EQ(::getpgid(trainer->pid()), trainer->pid());
  const auto environment = ReadFile(fmt::format("/proc/{}/environ", trainer->pid()));
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment.value().find("SECRET"), std::string::npos);
  EXPECT_NE(environment.value().find("RINGMASTER_MEMBER=agent.1"), std::string::npos);
  trainer->Kill();
  Reap(*trainer);
}

TEST(TrainerProcess, AMissingProgramIsAnErrorNotAProcess) {
  const auto started = TrainerProcess::Start({.words = {"/nowhere/trainer"}}, "agent.1");
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, Code::kNotFound);
  EXPECT_NE(started.error().message.find("/nowhere/trainer"), std::string::npos);
  EXPECT_GT(::waitpid(-1, nullptr, 0), 0);
}

TEST(TrainerProcess, LeavesNothingBehind) {
  const int fds = OpenFds(::getpid());
  const int threads = Threads(::getpid());
  for (int i = 0; i < 50; ++i) {
    auto trainer = StartJoined(Command("idle"));
    trainer->Kill();
    Reap(*trainer);
  }
  EXPECT_EQ(OpenFds(::getpid()), fds);
  EXPECT_EQ(Threads(::getpid()), threads);
  EXPECT_EQ(Children(::getpid()), "");
}

}  // namespace
}  // namespace ringmaster::agent
