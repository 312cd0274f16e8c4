// SPDX-License-Identifier: Apache-2.0

// Child processes: how they start, what they inherit, and that none stays behind.
#include "operator/local/process_supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "tests/temp_folder.h"
#include "tests/unit/operator/await.h"

namespace ringmaster::local {
namespace {

class ProcessSupervisorTest : public testing::Test {
 protected:
  SpawnSpec Shell(const std::string& script) {
    return {{"/bin/sh", "-c", script}, {{"GREETING", "hello"}}, scratch_.File("pod"), scratch_.File("log")};
  }
  void Make() {
    supervisor_.emplace(
        [this](const std::string&, const Result<pid_t>& pid) {
          std::lock_guard lock(mutex_);
          if (pid.ok())
            pid_ = *pid;
          else
            start_error_ = pid.error();
        },
        [this](const std::string&, int code) {
          std::lock_guard lock(mutex_);
          exit_code_ = code;
        });
  }
  template <class T>
  std::optional<T> Get(const std::optional<T>& value) {
    std::lock_guard lock(mutex_);
    return value;
  }
  int RunToEnd(const std::string& script) {
    Make();
    supervisor_->Start("a", Shell(script));
    EXPECT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
    return Get(exit_code_).value_or(-1);
  }

  TempFolder scratch_;
  std::mutex mutex_;
  std::optional<pid_t> pid_;
  std::optional<int> exit_code_;
  std::optional<Error> start_error_;
  std::optional<ProcessSupervisor> supervisor_;
};

TEST_F(ProcessSupervisorTest, ExitCodeOutputFolderAndEnvironment) {
  EXPECT_EQ(RunToEnd("echo $GREETING from $PWD; echo and errors >&2; exit 9"), 9);
  EXPECT_EQ(scratch_.Read("log"), "hello from " + (scratch_.File("pod")) + "\nand errors\n");
}

TEST_F(ProcessSupervisorTest, IgnoredSignalsAreNotInherited) {
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  EXPECT_EQ(RunToEnd("kill -PIPE $$; exit 0"), 128 + SIGPIPE);
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST_F(ProcessSupervisorTest, DescriptorsAreNotInherited) {
  const Fd leaked(::fcntl(0, F_DUPFD, 77));  // without close-on-exec
  ASSERT_GE(leaked.get(), 77);
  EXPECT_EQ(RunToEnd("test -e /proc/$$/fd/2 || exit 8; test -e /proc/$$/fd/" + std::to_string(leaked.get()) +
                     " && exit 7; exit 0"),
            0);
}

TEST_F(ProcessSupervisorTest, AMissingProgramIsAnErrorWithItsPath) {
  Make();
  SpawnSpec spec = Shell("");
  spec.argv = {"/no/such/program"};
  supervisor_->Start("a", spec);
  ASSERT_TRUE(Await([&] { return Get(start_error_).has_value(); }));
  EXPECT_EQ(start_error_->code, Code::kInvalid);
  EXPECT_NE(start_error_->message.find("/no/such/program"), std::string::npos);
}

TEST_F(ProcessSupervisorTest, AFolderThatCannotBeCreatedIsAnError) {
  Make();
  SpawnSpec spec = Shell("exit 0");
  spec.folder = "/proc/nowhere";
  supervisor_->Start("a", spec);
  ASSERT_TRUE(Await([&] { return Get(start_error_).has_value(); }));
  EXPECT_EQ(start_error_->code, Code::kInvalid);
}

TEST_F(ProcessSupervisorTest, ProcessesThatAPodLeavesBehindAreKilled) {
  EXPECT_EQ(RunToEnd("sleep 1000 & sleep 1000 & exit 3"), 3);
  EXPECT_TRUE(Await([&] { return !GroupAlive(*Get(pid_)); }));
}

TEST_F(ProcessSupervisorTest, StopSendsSigtermFirst) {
  Make();
  supervisor_->Start("a", Shell("trap 'exit 5' TERM; touch ready; while :; do sleep 1000 & wait $!; done"));
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pod/ready")); }));
  supervisor_->Stop("a", seconds(600));
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  EXPECT_EQ(*Get(exit_code_), 5);
}

TEST_F(ProcessSupervisorTest, AProcessThatIgnoresSigtermIsKilledAfterItsGrace) {
  Make();
  supervisor_->Start("a", Shell("trap '' TERM; touch ready; while :; do sleep 1000; done"));
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pod/ready")); }));
  supervisor_->Stop("a", milliseconds(50));
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  EXPECT_EQ(*Get(exit_code_), 137);
}

TEST_F(ProcessSupervisorTest, AStoppedProcessIsKilledToo) {
  Make();
  supervisor_->Start("a", Shell("kill -STOP $$; exit 0"));
  ASSERT_TRUE(Await([&] { return Get(pid_).has_value(); }));
  supervisor_->Stop("a", Duration{0});
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  EXPECT_EQ(*Get(exit_code_), 137);
}

// A process with much memory ends long after the signal, and after the first process of its group.
TEST_F(ProcessSupervisorTest, TheDestructorWaitsForWhatAnEndedPodLeaves) {
  Make();
  const std::string large = "dd if=/dev/zero of=/dev/null bs=600M status=none";
  supervisor_->Start(
      "a",
      Shell(large + " & dd if=/dev/zero bs=600M count=1 status=none | wc -c >size; mv size ready; wait"));
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pod/ready")); }));
  supervisor_->Stop("a", Duration{0});
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  supervisor_.reset();
  EXPECT_FALSE(GroupAlive(*Get(pid_)));
}

TEST_F(ProcessSupervisorTest, TheDestructorLeavesNoProcess) {
  Make();
  supervisor_->Start("a", Shell("trap '' TERM; sleep 1000 & touch ready; wait; sleep 1000"));
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pod/ready")); }));
  supervisor_.reset();
  EXPECT_FALSE(GroupAlive(*Get(pid_)));
}

// kill -9 of the owner: the kernel ends the child.
TEST_F(ProcessSupervisorTest, ChildrenEndWithAKilledOwner) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const int out = writer.get();
    const ProcessSupervisor supervisor(
        [out](const std::string&, const Result<pid_t>& pid) {
          const pid_t value = pid.ok() ? *pid : -1;
          if (::write(out, &value, sizeof value) != sizeof value) ::_exit(1);
        },
        [](const std::string&, int) {});
    const_cast<ProcessSupervisor&>(supervisor)
        .Start("a", Shell("trap '' TERM HUP; while :; do sleep 1000; done"));
    for (;;) ::pause();
  }
  writer.Reset();
  pid_t child = -1;
  ASSERT_EQ(::read(reader.get(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  EXPECT_EQ(::kill(child, 0), 0);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  // The shell ends at once. Its children are not part of this test.
  EXPECT_TRUE(Await([&] {
    const Result<std::string> stat = ReadFile("/proc/" + std::to_string(child) + "/stat");
    return !stat.ok() || stat.value().empty() || stat.value().find(") Z ") != std::string::npos;
  }));
  SignalGroup(child, SIGKILL);
}

}  // namespace
}  // namespace ringmaster::local
