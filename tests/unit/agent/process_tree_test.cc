// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/process_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <vector>

#include "base/fd.h"
#include "base/pipe.h"

namespace ringmaster::agent {
namespace {

void Nothing(int) {}

// A child that does `work`, writes a byte, and waits for its end.
class Child {
 public:
  template <class Work>
  explicit Child(Work work) {
    const auto pipe = ringmaster::MakePipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      work();
      [[maybe_unused]] const ssize_t put = ::write(pipe->write.get(), "x", 1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(pipe->read.get(), &byte, 1), 1);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(ProcessTree, ProcessesAreNamedWithTheirState) {
  const Child child([] { ::prctl(PR_SET_NAME, "a) b"); });
  const pid_t own = ::getpid();
  const std::string text = DescribeProcesses({child.pid(), own});
  const std::string of_child = fmt::format("pid {} (a) b), state ", child.pid());
  EXPECT_TRUE(text.starts_with(of_child)) << text;
  EXPECT_NE(text.find(fmt::format("; pid {} (", own)), std::string::npos) << text;
  EXPECT_TRUE(DescribeProcesses({own, own, own, own, own}).ends_with("; 2 more"));
  EXPECT_EQ(DescribeProcesses({}), "");
}

TEST(ProcessTree, CpuTimeAndBytesOfDescendantsCount) {
  const ProcessWork before = WorkOf(::getpid());
  const Child child([] {
    const Fd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    std::array<char, 1 << 16> block;
    for (int i = 0; i < 64; ++i)
      if (::read(zeros.get(), block.data(), block.size()) < 0) ::_exit(1);
    const clock_t begin = ::clock();
    while (::clock() - begin < CLOCKS_PER_SEC / 20) {
    }
  });
  const ProcessWork after = WorkOf(::getpid());
  EXPECT_GE(after.cpu - before.cpu, milliseconds(40));
  EXPECT_GE(after.io_bytes - before.io_bytes, uint64_t{4} << 20);
  EXPECT_FALSE(after.stopped);
  EXPECT_EQ(WorkOf(-1).cpu, Duration::zero()) << "a process that does not exist";
}

TEST(ProcessTree, ASignalReachesTheFirstProcessThatTakesIt) {
  EXPECT_TRUE(ReceiversOf(Child([] {}).pid(), SIGUSR2).empty());
  const Child catches([] { ::signal(SIGUSR2, Nothing); });
  EXPECT_TRUE(TakesSignal(catches.pid(), SIGUSR2));
  EXPECT_EQ(ReceiversOf(catches.pid(), SIGUSR2), std::vector<pid_t>{catches.pid()});
  EXPECT_EQ(ReceiversOf(::getpid(), SIGUSR2), std::vector<pid_t>{catches.pid()}) << "a child of this process";
}

}  // namespace
}  // namespace ringmaster::agent
