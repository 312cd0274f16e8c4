// SPDX-License-Identifier: Apache-2.0

// Pods with several trainers: starts, ends, and the environment of each trainer. Uses real processes.
#include "worker/agent/slots.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "base/pipe.h"
#include "tests/unit/agent/rig.h"
#include "worker/agent/shell/signals.h"

namespace ringmaster::agent {
namespace {

struct Hello {
  int32_t slot;
  pid_t pid;
};

// Replaces an agent: writes its slot and pid, and exits on SIGTERM.
int RunUntilSigterm(int32_t slot, int fd) {
  const Hello hello = {slot, ::getpid()};
  if (::write(fd, &hello, sizeof hello) != sizeof hello) return 99;
  sigset_t leave;
  ::sigemptyset(&leave);
  ::sigaddset(&leave, SIGTERM);
  int signal = 0;
  ::sigwait(&leave, &signal);
  return 0;
}

// Replaces the agent of a program: reports each signal that it gets as its slot, too.
int ReportSignals(int32_t slot, int fd) {
  sigset_t all;
  ::sigemptyset(&all);
  ::sigaddset(&all, SIGTERM);
  AddPassedSignals(all);
  for (int32_t report = slot;;) {
    const Hello hello = {report, ::getpid()};
    if (::write(fd, &hello, sizeof hello) != sizeof hello) return 99;
    ::sigwait(&all, &report);
    if (report == SIGTERM) return 0;
  }
}

constexpr int32_t kRelay = -1;  // the slot by which the relay reports itself, where a test asks for it

// Runs SuperviseSlots in a separate process, as in a pod.
class Pod {
 public:
  Pod(int32_t slots, Duration short_life, const std::function<int(int32_t slot, int fd)>& run_agent,
      bool relay_reports = false) {
    auto pipe = MakePipe();
    CHECK(pipe.ok());
    read_ = std::move(pipe.value().read);
    const Fd write = std::move(pipe.value().write);
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    sigset_t ours;
    ::sigemptyset(&ours);
    for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&ours, signal);
    AddPassedSignals(ours);
    ::sigprocmask(SIG_BLOCK, &ours, nullptr);
    const Fd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    SlotPrograms programs;
    programs.pass_signals = true;
    programs.agent = [&](int32_t slot, int) {
      ::_exit(run_agent(slot, write.get()));
      return 0;
    };
    programs.relay = [&](std::vector<Fd> doorbells) {
      ::_exit(doorbells.size() != static_cast<size_t>(slots)
                  ? 98
                  : RunUntilSigterm(kRelay, relay_reports ? write.get() : nowhere.get()));
      return 0;
    };
    ::_exit(SuperviseSlots(slots, programs, short_life));
  }
  ~Pod() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  Hello Next() {
    Hello hello = {-1, -1};
    EXPECT_TRUE(WaitReadable(read_.get()));
    EXPECT_EQ(::read(read_.get(), &hello, sizeof hello), static_cast<ssize_t>(sizeof hello));
    return hello;
  }
  std::map<int32_t, pid_t> NextOf(int count) {
    std::map<int32_t, pid_t> agents;
    for (int i = 0; i < count; ++i) {
      const Hello hello = Next();
      agents[hello.slot] = hello.pid;
    }
    return agents;
  }
  pid_t pid() const { return pid_; }
  int Wait() {
    const Fd end = OpenPid(pid_);
    EXPECT_TRUE(WaitReadable(end.get()));
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  Fd read_;
};

TEST(SuperviseSlots, TheEndOfThePodEndsAllAgents) {
  Pod pod(3, seconds(1), RunUntilSigterm);
  const auto agents = pod.NextOf(3);
  EXPECT_EQ(agents.size(), 3U);
  ::kill(pod.pid(), SIGTERM);
  EXPECT_EQ(pod.Wait(), 0);
  for (const auto& [slot, pid] : agents) EXPECT_NE(::kill(pid, 0), 0) << slot;
}

TEST(SuperviseSlots, AKilledAgentRestartsAndTheOthersContinue) {
  Pod pod(2, Duration::zero(), RunUntilSigterm);
  auto agents = pod.NextOf(2);
  ::kill(agents.at(1), SIGKILL);
  const Hello again = pod.Next();
  EXPECT_EQ(again.slot, 1);
  EXPECT_NE(again.pid, agents.at(1));
  EXPECT_EQ(::kill(agents.at(0), 0), 0);
  ::kill(pod.pid(), SIGTERM);
  EXPECT_EQ(pod.Wait(), 0);
}

TEST(SuperviseSlots, AnAgentKilledRightAfterItsStartEndsThePod) {
  Pod pod(2, seconds(3600), RunUntilSigterm);
  const auto agents = pod.NextOf(2);
  ::kill(agents.at(0), SIGKILL);
  EXPECT_EQ(pod.Wait(), 128 + SIGKILL);
}

TEST(SuperviseSlots, AKilledRelayRestartsAndTheAgentsContinue) {
  Pod pod(2, Duration::zero(), RunUntilSigterm, true);
  const auto all = pod.NextOf(3);
  ::kill(all.at(kRelay), SIGKILL);
  const Hello again = pod.Next();
  EXPECT_EQ(again.slot, kRelay);
  EXPECT_NE(again.pid, all.at(kRelay));
  EXPECT_EQ(::kill(all.at(0), 0), 0);
  EXPECT_EQ(::kill(all.at(1), 0), 0);
  ::kill(pod.pid(), SIGTERM);
  EXPECT_EQ(pod.Wait(), 0);
  EXPECT_NE(::kill(again.pid, 0), 0);
}

TEST(SuperviseSlots, AFailedAgentEndsThePodWithItsCode) {
  Pod pod(3, seconds(1), [](int32_t slot, int fd) { return slot == 1 ? 64 : RunUntilSigterm(slot, fd); });
  EXPECT_EQ(pod.Wait(), 64);
}

TEST(SuperviseSlots, SignalsForTheProgramReachEverySlotAndNotTheRelay) {
  Pod pod(2, seconds(1), ReportSignals, true);
  const auto all = pod.NextOf(3);
  for (const int signal : kPassedSignals) {
    ::kill(pod.pid(), signal);
    const Hello first = pod.Next();
    const Hello second = pod.Next();
    EXPECT_EQ(first.slot, signal);
    EXPECT_EQ(second.slot, signal);
    EXPECT_EQ((std::set<pid_t>{first.pid, second.pid}), (std::set<pid_t>{all.at(0), all.at(1)}));
  }
  EXPECT_EQ(::kill(all.at(kRelay), 0), 0);
  ::kill(pod.pid(), SIGTERM);
  EXPECT_EQ(pod.Wait(), 0);
}

TEST(SuperviseSlots, AgentsDoNotOutliveThePod) {
  Pod pod(2, seconds(1), RunUntilSigterm);
  const auto agents = pod.NextOf(2);
  const Fd first = OpenPid(agents.at(0));
  const Fd second = OpenPid(agents.at(1));
  ::kill(pod.pid(), SIGKILL);
  EXPECT_TRUE(WaitReadable(first.get()));
  EXPECT_TRUE(WaitReadable(second.get()));
}

using Strings = std::vector<std::string>;

class SlotEnvironmentTest : public testing::Test {
 protected:
  Result<std::vector<std::string>> Of(int32_t slot, int32_t slots, int32_t gpus) {
    return Of(Trainer(slot, slots), gpus);
  }
  Result<std::vector<std::string>> Of(const Config& config, int32_t gpus) {
    return SlotEnvironment(config, Variables(), 16, gpus);
  }
  static Config Trainer(int32_t slot, int32_t slots) {
    Config config;
    config.slot = slot;
    config.slots = slots;
    return config;
  }
  static Config Program(int32_t slot, int32_t slots, const char* framework = "pytorch") {
    Config config = Trainer(slot, slots);
    config.program = {"python", "train.py"};
    config.framework = framework;
    return config;
  }
  // A pod of MPI has one agent, whatever its slots.
  static Config Mpi(int32_t slots) {
    Config config = Program(0, 1, "mpi");
    config.mpi = "openmpi";
    config.mpi_slots = slots;
    return config;
  }
  GetEnv Variables() const {
    return [this](const char* name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    };
  }
  std::map<std::string, std::string> variables_;
};

TEST_F(SlotEnvironmentTest, ThreadsAreShared) {
  EXPECT_EQ(*Of(1, 4, 0), (std::vector<std::string>{"RINGMASTER_SLOT=1", "RINGMASTER_THREADS=4"}));
  variables_["RINGMASTER_THREADS"] = "6";
  EXPECT_EQ(Of(0, 4, 0)->at(1), "RINGMASTER_THREADS=1");
  EXPECT_EQ(Of(0, 8, 0)->at(1), "RINGMASTER_THREADS=1") << "never none";
}

// Otherwise each rank of a program starts as many threads as the pod has cores.
TEST_F(SlotEnvironmentTest, RanksOfAProgramShareTheCores) {
  const auto has = [&](const Config& config, const std::string& variable) {
    const Strings all = *Of(config, 0);
    return std::find(all.begin(), all.end(), variable) != all.end();
  };
  EXPECT_TRUE(has(Program(1, 4), "OMP_NUM_THREADS=4"));
  EXPECT_EQ(*Of(Program(0, 1), 0), Strings{});
  variables_["RINGMASTER_THREADS"] = "2";
  EXPECT_TRUE(has(Program(1, 4), "OMP_NUM_THREADS=1"));
  variables_["OMP_NUM_THREADS"] = "7";
  EXPECT_FALSE(has(Program(1, 4), "OMP_NUM_THREADS=1")) << "the user's";
}

TEST_F(SlotEnvironmentTest, EachSlotHasItsGpu) {
  EXPECT_EQ(Of(2, 4, 8)->at(2), "CUDA_VISIBLE_DEVICES=2");
  EXPECT_EQ(Of(2, 4, 8)->at(3), "RINGMASTER_GPU_TURN=2") << "the trainer sees how they are joined";
  variables_["CUDA_VISIBLE_DEVICES"] = "GPU-aa,GPU-bb";
  EXPECT_EQ(Of(1, 2, 8)->at(2), "CUDA_VISIBLE_DEVICES=GPU-bb");
  EXPECT_EQ(Of(1, 2, 8)->at(3), "RINGMASTER_GPU_TURN=") << "chosen by the user";
}

TEST_F(SlotEnvironmentTest, PodsOfOneMachineTakeTurnsWithItsGpus) {
  const auto gpu = [&](int32_t slots, int32_t slot, int32_t gpus) {
    return *OwnGpu(slot, slots, Variables(), gpus);
  };
  EXPECT_EQ(gpu(1, 0, 8), Strings{}) << "in a container: what it was given";
  variables_["RINGMASTER_LOCAL_RANK"] = "3";
  EXPECT_EQ(gpu(1, 0, 8), (Strings{"CUDA_VISIBLE_DEVICES=3", "RINGMASTER_GPU_TURN=3"}));
  EXPECT_EQ(gpu(2, 1, 8), (Strings{"CUDA_VISIBLE_DEVICES=7", "RINGMASTER_GPU_TURN=7"}));
  EXPECT_EQ(gpu(1, 0, 2), (Strings{"CUDA_VISIBLE_DEVICES=1", "RINGMASTER_GPU_TURN=3"})) << "they share";
  EXPECT_EQ(gpu(1, 0, 0), Strings{});
  variables_["CUDA_VISIBLE_DEVICES"] = "4,5";
  EXPECT_EQ(gpu(1, 0, 8), (Strings{"CUDA_VISIBLE_DEVICES=5", "RINGMASTER_GPU_TURN="}));
}

TEST_F(SlotEnvironmentTest, FewerGpusThanSlotsAreRefused) {
  const auto few = Of(0, 4, 2);
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.error().message.find("4 trainers, but this pod has 2 GPUs"), std::string::npos)
      << few.error().message;
  variables_["CUDA_VISIBLE_DEVICES"] = "";  // hidden on purpose: the CPU trains
  EXPECT_TRUE(Of(0, 4, 2).ok());
}

// LOCAL_RANK selects one of them, as under torchrun.
TEST_F(SlotEnvironmentTest, EachRankOfAProgramSeesTheGpusOfItsPod) {
  const Strings unchanged = {"RINGMASTER_SLOT=1", "RINGMASTER_THREADS=8", "OMP_NUM_THREADS=8"};
  EXPECT_EQ(*Of(Program(1, 2), 8), unchanged) << "in a container: what it was given";
  EXPECT_EQ(*Of(Program(0, 1), 8), Strings{});
  variables_["CUDA_VISIBLE_DEVICES"] = "GPU-aa,GPU-bb";
  EXPECT_EQ(*Of(Program(1, 2), 8), unchanged);
}

TEST_F(SlotEnvironmentTest, ProgramsOfPodsThatShareAMachineSeeAPartOfItsGpus) {
  const auto gpus = [&](const char* pod, const Config& config, int32_t count) {
    variables_["RINGMASTER_LOCAL_RANK"] = pod;
    return Of(config, count)->back();
  };
  EXPECT_EQ(gpus("0", Program(0, 2), 4), "CUDA_VISIBLE_DEVICES=0,1");
  EXPECT_EQ(gpus("1", Program(0, 2), 4), "CUDA_VISIBLE_DEVICES=2,3");
  EXPECT_EQ(gpus("1", Program(1, 2), 4), "CUDA_VISIBLE_DEVICES=2,3") << "the same for every slot";
  EXPECT_EQ(gpus("1", Program(1, 2), 3), "CUDA_VISIBLE_DEVICES=2,0") << "they share";
  EXPECT_EQ(gpus("3", Program(0, 1), 8), "CUDA_VISIBLE_DEVICES=3");
  EXPECT_EQ(gpus("1", Program(1, 2), 0), "OMP_NUM_THREADS=8") << "no GPU";
  variables_["CUDA_VISIBLE_DEVICES"] = "7,GPU-aa,5,GPU-bb";
  EXPECT_EQ(gpus("1", Program(0, 2), 8), "CUDA_VISIBLE_DEVICES=5,GPU-bb");
}

TEST_F(SlotEnvironmentTest, AProgramWithoutALocalRankHasItsGpu) {
  EXPECT_EQ(Of(Program(1, 2, "custom"), 8)->at(3), "CUDA_VISIBLE_DEVICES=1");
  EXPECT_EQ(Of(Program(1, 2, "deepspeed"), 8)->size(), 3U) << "the GPUs of the pod";
}

TEST_F(SlotEnvironmentTest, APodOfMpiHasAGpuForEachOfItsRanks) {
  EXPECT_EQ(*Of(Mpi(2), 8), Strings{}) << "in a container: what it was given";
  variables_["RINGMASTER_LOCAL_RANK"] = "1";
  EXPECT_EQ(*Of(Mpi(2), 8), Strings{"CUDA_VISIBLE_DEVICES=2,3"});
  EXPECT_EQ(*Of(Mpi(4), 2), Strings{"CUDA_VISIBLE_DEVICES=0,1"}) << "its ranks share";
}

TEST_F(SlotEnvironmentTest, FewerGpusThanRanksOfAProgramAreRefused) {
  for (const char* pod : {"", "1"}) {
    if (*pod != '\0') variables_["RINGMASTER_LOCAL_RANK"] = pod;
    const auto few = Of(Program(0, 4), 2);
    ASSERT_FALSE(few.ok());
    EXPECT_NE(few.error().message.find("4 ranks, but this pod has 2 GPUs"), std::string::npos)
        << few.error().message;
  }
}

TEST(CountGpus, CountsDeviceFilesOfGpusOnly) {
  const TempFolder folder;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "null"})
    ASSERT_TRUE(WriteFileAtomic(folder.File(name), "").ok());
  EXPECT_EQ(CountGpus(std::filesystem::path(folder.File("x")).parent_path()), 3);
  EXPECT_EQ(CountGpus("/nowhere"), 0);
}

}  // namespace
}  // namespace ringmaster::agent
