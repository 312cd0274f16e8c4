// SPDX-License-Identifier: Apache-2.0

// Child processes: how they start, what they inherit, and that none stays behind.
#include "operator/local/process_supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/open_file.h"
#include "base/process_children.h"
#include "operator/local/leftovers.h"
#include "operator/local/spawn.h"
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
  // A process may run before its start is reported.
  pid_t Pid() {
    EXPECT_TRUE(Await([&] { return Get(pid_).has_value(); }));
    return Get(pid_).value_or(-1);
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

// What the child reports, when the program is on the same disk as the log.
TEST_F(ProcessSupervisorTest, AProgramThatMayBeReadableLaterIsNoBadInput) {
  const auto code = [this](const SpawnSpec& spec) {
    const Result<Process> process = Spawn(spec);
    if (process.ok()) Reap(*process);
    return process.ok() ? std::nullopt : std::optional(process.error().code);
  };
  SpawnSpec spec = Shell("");
  spec.argv = {scratch_.File("program")};
  scratch_.Write("program", "no program");
  EXPECT_EQ(code(spec), Code::kInvalid);  // no permission to execute it
  ASSERT_EQ(::chmod(spec.argv[0].c_str(), 0700), 0);
  EXPECT_EQ(code(spec), Code::kInvalid);  // another format
  const Fd writer = OpenFile(spec.argv[0], O_WRONLY);
  ASSERT_TRUE(writer.valid());
  EXPECT_EQ(code(spec), Code::kUnavailable);  // ETXTBSY: it is still being written
}

// Whether this thread of the process waits, in a system call or for a lock.
bool Sleeps(pid_t thread) {
  const Result<std::string> stat = ReadFile("/proc/self/task/" + std::to_string(thread) + "/stat");
  return stat.ok() && stat->find(") S ") != std::string::npos;
}

bool IsPending(pid_t thread, int signal) {
  const Result<std::string> status = ReadFile("/proc/self/task/" + std::to_string(thread) + "/status");
  const size_t at = status.ok() ? status->find("SigPnd:") : std::string::npos;
  return at != std::string::npos &&
         (std::stoull(status->substr(at + 7), nullptr, 16) >> (signal - 1) & 1) != 0;
}

// Network file systems report interrupts. The open of a pipe waits for its reader, so that signals reach it.
TEST_F(ProcessSupervisorTest, AnInterruptWhileTheLogIsOpenedIsNoError) {
  struct sigaction before {};
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  SpawnSpec spec = Shell("exit 0");
  ASSERT_EQ(::mkfifo(spec.log.c_str(), 0600), 0);
  std::thread interrupts([starter = ::pthread_self(), thread = ::gettid(), &spec] {
    // The thread sanitizer calls a handler later, so the test asks the kernel whether a signal has arrived.
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(Await([&] { return Sleeps(thread); }));
      ::pthread_kill(starter, SIGUSR1);
      EXPECT_TRUE(Await([&] { return !IsPending(thread, SIGUSR1); }));
    }
    const Fd reader(::open(spec.log.c_str(), O_RDONLY | O_CLOEXEC));
    char byte = 0;
    EXPECT_EQ(::read(reader.get(), &byte, 1), 0);  // until the child has ended
  });
  const Result<Process> process = Spawn(spec);
  if (!process.ok()) OpenFile(spec.log, O_WRONLY);  // lets the thread end
  interrupts.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  ASSERT_TRUE(process.ok()) << process.error().message;
  EXPECT_EQ(PeekExitCode(*process), 0);
  Reap(*process);
}

TEST_F(ProcessSupervisorTest, ProcessesThatAPodLeavesBehindAreKilled) {
  EXPECT_EQ(RunToEnd("sleep 1000 & sleep 1000 & exit 3"), 3);
  EXPECT_TRUE(Await([&] { return !GroupAlive(Pid()); }));
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
  EXPECT_FALSE(GroupAlive(Pid()));
}

TEST_F(ProcessSupervisorTest, TheDestructorLeavesNoProcess) {
  Make();
  supervisor_->Start("a", Shell("trap '' TERM; sleep 1000 & touch ready; wait; sleep 1000"));
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pod/ready")); }));
  const pid_t pid = Pid();
  supervisor_.reset();
  EXPECT_FALSE(GroupAlive(pid));
}

// A shell that starts a process in another session, and says which one.
constexpr const char* kDetaches = "setsid sh -c 'echo $$ >left; mv left ready; sleep 1000; :' & ";

bool IsGone(pid_t pid) {
  const Result<std::string> stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  return !stat.ok() || stat->empty() || stat->find(") Z ") != std::string::npos;
}

class LeftBehind : public ProcessSupervisorTest {
 protected:
  // Returns the pid of the process that the pod has detached.
  pid_t Detached() {
    EXPECT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pod/ready")); }));
    const Result<std::string> text = ReadFile(scratch_.File("pod/ready"));
    return text.ok() ? static_cast<pid_t>(std::strtol(text->c_str(), nullptr, 10)) : -1;
  }
};

TEST_F(LeftBehind, AnotherSessionHasEndedBeforeTheEndOfThePodIsReported) {
  Make();
  supervisor_->Start("a", Shell(std::string(kDetaches) + "sleep 1000; :"));
  const pid_t detached = Detached();
  ASSERT_FALSE(IsGone(detached));
  const pid_t pid = Pid();
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  EXPECT_EQ(*Get(exit_code_), 137);
  EXPECT_TRUE(IsGone(detached));
}

TEST_F(LeftBehind, AnotherSessionEndsWithTheDestructor) {
  Make();
  supervisor_->Start("a", Shell(std::string(kDetaches) + "sleep 1000; :"));
  const pid_t detached = Detached();
  supervisor_.reset();
  EXPECT_TRUE(IsGone(detached));
}

TEST_F(LeftBehind, AKilledWardenIsReplacedWhenItsPodsHaveEnded) {
  Make();
  supervisor_->Start("a", Shell(std::string(kDetaches) + "sleep 1000; :"));
  const pid_t detached = Detached();
  const std::vector<pid_t> children = ChildrenOfThisProcess();
  ASSERT_EQ(children.size(), 1U);
  ::kill(children[0], SIGKILL);
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  EXPECT_EQ(*Get(exit_code_), 137);
  EXPECT_TRUE(IsGone(Pid()));
  EXPECT_TRUE(IsGone(detached));
  {
    std::lock_guard lock(mutex_);
    exit_code_.reset();
  }
  supervisor_->Start("b", Shell("exit 4"));
  ASSERT_TRUE(Await([&] { return Get(exit_code_).has_value(); }));
  EXPECT_EQ(*Get(exit_code_), 4);
}

// SIGKILL of the owner at the same moment as of the pod.
TEST_F(LeftBehind, EverythingEndsWithAKilledOwner) {
  const pid_t owner = ::fork();
  if (owner == 0) {
    ProcessSupervisor supervisor(
        [this](const std::string&, const Result<pid_t>& pid) {
          if (!pid.ok() || !WriteFileAtomic(scratch_.File("pid"), std::to_string(*pid)).ok()) ::_exit(1);
        },
        [](const std::string&, int) {});
    supervisor.Start("a",
                     Shell(std::string("trap '' TERM HUP; ") + kDetaches + "while :; do sleep 1000; done"));
    for (;;) ::pause();
  }
  const pid_t detached = Detached();
  ASSERT_TRUE(Await([&] { return std::filesystem::exists(scratch_.File("pid")); }));
  const auto pod = static_cast<pid_t>(std::strtol(ReadFile(scratch_.File("pid"))->c_str(), nullptr, 10));
  EXPECT_FALSE(IsGone(pod));
  ::kill(pod, SIGKILL);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_TRUE(Await([&] { return IsGone(pod) && IsGone(detached); }));
}

TEST_F(LeftBehind, TheNextRunOfAFolderEndsWhatAnEarlierOneHasLeft) {
  const std::string variable = "RINGMASTER_JOB_FILE=" + scratch_.File("job.json");
  const pid_t left = ::fork();
  if (left == 0) {
    ::setsid();
    const char* const argv[] = {"sleep", "1000", nullptr};
    const char* const envp[] = {"PATH=/bin", variable.c_str(), nullptr};
    ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(envp));
    ::_exit(1);
  }
  ASSERT_TRUE(Await([&] {
    const Result<std::string> name = ReadFile("/proc/" + std::to_string(left) + "/comm");
    return name.ok() && *name == "sleep\n";
  }));
  EXPECT_TRUE(EndLeftovers(variable + "x").ok());
  EXPECT_FALSE(IsGone(left));
  EXPECT_TRUE(EndLeftovers(variable).ok());
  EXPECT_TRUE(IsGone(left));
  ::waitpid(left, nullptr, 0);
}

}  // namespace
}  // namespace ringmaster::local
