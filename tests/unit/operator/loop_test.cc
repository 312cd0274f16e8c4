// SPDX-License-Identifier: Apache-2.0

// The operator of `ringmaster run` as a whole: loop, controller, core and local backend. Shell scripts are
// the workers, and the test acts as the coordinator.
#include <gtest/gtest.h>
#include <signal.h>

#include <mutex>
#include <set>

#include "operator/control/loop.h"
#include "operator/local/local_backend.h"
#include "tests/temp_folder.h"
#include "tests/unit/operator/await.h"

namespace ringmaster::local {
namespace {

using core::PodPhase;
using rendezvous::GangPhase;

// Runs until SIGTERM or until the file `finish` exists.
constexpr const char* kRunsUntilStopped = R"(
trap 'exit 0' TERM
echo started as $RINGMASTER_POD of $RINGMASTER_JOB
while [ ! -e "$FINISH" ]; do sleep 0.02 & wait $!; done
)";

class LoopTest : public testing::Test {
 protected:
  void Start(const std::string& script, api::TrainingJob job) {
    std::ofstream(scratch_.File("worker.sh")) << script;
    Start({"/bin/sh", scratch_.File("worker.sh")}, std::move(job));
  }
  void Start(std::vector<std::string> argv, api::TrainingJob job) {
    LocalBackend::Options options;
    options.argv = std::move(argv);
    options.directory = scratch_.File("out");
    options.environment.extra["FINISH"] = scratch_.File("finish");
    options.on_gang = [this](const control::Key&, const core::SetGang& order) {
      std::lock_guard lock(mutex_);
      orders_.push_back(order);
    };
    options.on_event = [this](const control::Key&, const core::Event& event) {
      std::lock_guard lock(mutex_);
      events_.insert(event.reason);
    };
    auto backend = LocalBackend::Create(std::move(options));
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(backend).value();
    loop_ = std::make_unique<control::Loop>(*backend_, control::Controller::Options{});
    key_ = backend_->Submit(job).value();
    loop_->Start();
  }
  void TearDown() override {
    if (loop_) loop_->Stop();
    backend_.reset();
  }

  static api::TrainingJob Job(int32_t replicas) {
    api::TrainingJob job;
    job.metadata.name = "gpt";
    job.spec.framework = "native";
    job.spec.workers.replicas = replicas;
    job.spec.workers.min = 1;
    job.spec.workers.max = 4;
    return job;
  }
  core::Observed Observe() { return backend_->Observe(key_)->observed; }
  int Running() {
    int running = 0;
    for (const core::Pod& pod : Observe().pods) running += pod.phase == PodPhase::kRunning ? 1 : 0;
    return running;
  }
  std::string UidOf(const std::string& name) {
    for (const core::Pod& pod : Observe().pods)
      if (pod.name == name && pod.phase == PodPhase::kRunning) return pod.uid;
    return "";
  }
  void Report(GangPhase phase, int64_t step = 10) {
    rendezvous::Report report;
    report.phase = phase;
    report.generation = 1;
    report.step = step;
    for (const core::Pod& pod : Observe().pods) report.live_pods.push_back(pod.name);
    backend_->SetReport(key_, report);
  }
  core::SetGang LastOrder() {
    std::lock_guard lock(mutex_);
    return orders_.empty() ? core::SetGang{} : orders_.back();
  }
  bool HasEvent(const std::string& reason) {
    std::lock_guard lock(mutex_);
    return events_.contains(reason);
  }

  TempFolder scratch_;
  std::mutex mutex_;
  std::vector<core::SetGang> orders_;
  std::set<std::string> events_;
  std::unique_ptr<LocalBackend> backend_;
  std::unique_ptr<control::Loop> loop_;
  control::Key key_;
};

TEST_F(LoopTest, StartsTrainsAndSucceeds) {
  Start(kRunsUntilStopped, Job(3));
  ASSERT_TRUE(Await([&] { return Running() == 3; }));
  EXPECT_EQ(LastOrder(), (core::SetGang{1, 1, 4, 3, false}));
  Report(GangPhase::kActive);
  ASSERT_TRUE(Await([&] { return Observe().status.display.phase == core::Phase::kRunning; }));
  EXPECT_FALSE(backend_->Settled(key_));
  Report(GangPhase::kFinished, 100);
  std::ofstream(scratch_.File("finish")) << "now";
  ASSERT_TRUE(backend_->WaitSettled(key_, seconds(60)));
  EXPECT_EQ(Observe().status.ledger.outcome, core::Outcome::kSucceeded);
  EXPECT_EQ(scratch_.Read("out/logs/gpt-1-2.log"), "started as gpt-1-2 of default/gpt\n");
  EXPECT_TRUE(Await([&] { return HasEvent("Succeeded"); }));
}

TEST_F(LoopTest, AKilledPodIsReplacedAndTheOthersStay) {
  Start(kRunsUntilStopped, Job(3));
  ASSERT_TRUE(Await([&] { return Running() == 3; }));
  Report(GangPhase::kActive);
  const std::string first = UidOf("gpt-1-0");
  const std::string second = UidOf("gpt-1-1");
  ASSERT_TRUE(backend_->SignalPod(key_, "gpt-1-1", SIGKILL).ok());
  ASSERT_TRUE(Await([&] {
    const std::string uid = UidOf("gpt-1-1");
    return !uid.empty() && uid != second;
  }));
  EXPECT_EQ(UidOf("gpt-1-0"), first);
  EXPECT_EQ(Observe().status.ledger.restarts.charged, 1);
  EXPECT_EQ(Observe().status.ledger.last_failure->exit_code, 137);
  EXPECT_TRUE(HasEvent("Exit"));
}

TEST_F(LoopTest, AStoppedAgentIsReplacedWhenItIsReportedSilent) {
  Start(kRunsUntilStopped, Job(2));
  ASSERT_TRUE(Await([&] { return Running() == 2; }));
  const std::string old = UidOf("gpt-1-1");
  ASSERT_TRUE(backend_->SignalPod(key_, "gpt-1-1", SIGSTOP).ok());
  rendezvous::Report report;
  report.phase = GangPhase::kActive;
  report.generation = 1;
  report.live_pods = {"gpt-1-0"};
  report.silent_pods = {"gpt-1-1"};
  backend_->SetReport(key_, report);
  ASSERT_TRUE(Await([&] { return UidOf("gpt-1-1") != old; }));
  EXPECT_EQ(Observe().status.ledger.last_failure->cause, core::Cause::kSilent);
}

TEST_F(LoopTest, BadConfigurationFailsTheJobWithTheReason) {
  Start("printf 'no such data path' > \"$RINGMASTER_TERMINATION_LOG\"; exit 64", Job(2));
  ASSERT_TRUE(backend_->WaitSettled(key_, seconds(60)));
  const core::Ledger ledger = Observe().status.ledger;
  EXPECT_EQ(ledger.outcome_reason, core::Reason::kBadConfiguration);
  EXPECT_NE(ledger.outcome_message.find("no such data path"), std::string::npos);
}

TEST_F(LoopTest, AMissingProgramFailsTheJobAtOnce) {
  Start(std::vector<std::string>{"/no/such/worker", "agent"}, Job(2));
  ASSERT_TRUE(backend_->WaitSettled(key_, seconds(60)));
  EXPECT_NE(Observe().status.ledger.outcome_message.find("/no/such/worker"), std::string::npos);
}

TEST_F(LoopTest, TheRestartBudgetIsRespected) {
  api::TrainingJob job = Job(1);
  job.spec.restart.maxRestarts = 3;
  job.spec.restart.backoff = {0, 0};
  Start("exit 1", job);
  ASSERT_TRUE(backend_->WaitSettled(key_, seconds(60)));
  const core::Ledger ledger = Observe().status.ledger;
  EXPECT_EQ(ledger.outcome_reason, core::Reason::kRestartBudgetSpent);
  EXPECT_EQ(ledger.restarts.charged, 3);
}

TEST_F(LoopTest, ReplacingTheJobScalesIt) {
  Start(kRunsUntilStopped, Job(2));
  ASSERT_TRUE(Await([&] { return Running() == 2; }));
  const std::string first = UidOf("gpt-1-0");
  ASSERT_TRUE(backend_->Replace(Job(4)).ok());
  ASSERT_TRUE(Await([&] { return Running() == 4; }));
  ASSERT_TRUE(backend_->Scale(key_, 1).ok());
  ASSERT_TRUE(Await([&] { return Observe().pods.size() == 1; }));
  EXPECT_EQ(UidOf("gpt-1-0"), first);
  EXPECT_TRUE(Await([&] { return LastOrder().target == 1; }));  // the order follows the deletion
  EXPECT_EQ(Observe().status.ledger.restarts.total, 0);
}

TEST_F(LoopTest, SuspendOrdersAStopAndResumeStartsANewAttempt) {
  Start(kRunsUntilStopped, Job(2));
  ASSERT_TRUE(Await([&] { return Running() == 2; }));
  Report(GangPhase::kActive);
  ASSERT_TRUE(backend_->SetSuspend(key_, true).ok());
  ASSERT_TRUE(Await([&] { return LastOrder().stop; }));
  EXPECT_EQ(Running(), 2);  // no worker is stopped before the checkpoint exists
  Report(GangPhase::kStopped);
  ASSERT_TRUE(backend_->WaitSettled(key_, seconds(60)));
  EXPECT_TRUE(Observe().status.ledger.suspended);
  ASSERT_TRUE(backend_->SetSuspend(key_, false).ok());
  ASSERT_TRUE(Await([&] { return Running() == 2; }));
  EXPECT_EQ(Observe().pods.at(0).name, "gpt-2-0");
}

TEST_F(LoopTest, AReloadSuspendsAndResumesButDoesNotUndoASuspend) {
  Start("exit 1", Job(1));
  api::TrainingJob suspended = Job(1);
  suspended.spec.suspend = true;
  ASSERT_TRUE(backend_->Replace(suspended).ok());
  EXPECT_TRUE(Observe().job.suspend);
  ASSERT_TRUE(backend_->Replace(Job(1)).ok());
  EXPECT_FALSE(Observe().job.suspend);
  ASSERT_TRUE(backend_->SetSuspend(key_, true).ok());
  ASSERT_TRUE(backend_->Replace(Job(1)).ok());
  EXPECT_TRUE(Observe().job.suspend);
}

TEST_F(LoopTest, DestructionLeavesNoProcess) {
  Start(std::string("trap '' TERM; echo $$ > pid; while :; do sleep 1000; done"), Job(2));
  const auto pid_of = [&](const std::string& pod) {
    return std::atoi(scratch_.Read(("out/pods/" + pod + "/pid")).c_str());
  };
  ASSERT_TRUE(Await([&] { return pid_of("gpt-1-0") > 0 && pid_of("gpt-1-1") > 0; }));
  loop_->Stop();
  backend_.reset();
  for (const char* pod : {"gpt-1-0", "gpt-1-1"}) EXPECT_FALSE(GroupAlive(pid_of(pod)));
}

}  // namespace
}  // namespace ringmaster::local
