// SPDX-License-Identifier: Apache-2.0

// Curves and busy times of a job on a cluster, from the lines that the trainer composes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/cluster/job_page.h"
#include "cli/cluster/logged_membership.h"
#include "cli/cluster/progress_curve.h"
#include "cli/cluster/worker_log.h"
#include "rendezvous/straggler_rule.h"
#include "worker/trainer/progress_log.h"

namespace ringmaster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A trainer that logs a line every five seconds, into the log of its pod.
class LoggingTrainer {
 public:
  LoggingTrainer(int rank, uint64_t generation, int64_t total_steps = 1000)
      : generation_(generation), trainer_(total_steps) {
    trainer_.StartGeneration(rank, "ucx:rc");
  }
  void Step(int64_t step, double loss, double busy_seconds = 0.03, int32_t micro_batches = 2) {
    now_ += seconds(5);
    const auto busy = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(busy_seconds));
    const auto line =
        trainer_.Committed({step, loss, 6e-4, 1.5, 32, generation_, 4, 0.04}, busy, micro_batches, now_);
    ASSERT_TRUE(line);
    Say(*line);
  }
  void Validated(const rendezvous::ValidationResult& result) { trainer_.Validated(result); }
  void LastValidation(const rendezvous::ValidationResult& result) { Say(trainer_.LastValidation(result)); }
  void Say(const std::string& line) {
    log.Add("2026-11-21T10:00:00Z 2026-11-21T10:00:00.000 I trainer pod=p member=m " + line);
  }

  WorkerLog log;

 private:
  const uint64_t generation_;
  trainer::ProgressLog trainer_;
  Time now_ = Time() + seconds(1000);
};

TEST(LoggedProgress, TheLinesOfATrainerAreRead) {
  LoggingTrainer worker(1, 4294967297);
  worker.Step(1, 4.5, 0.0625);
  worker.Validated({200, 2.75, 0.5});
  worker.Step(250, NAN, 0.03125, 3);
  worker.LastValidation({1000, 2.25, std::nullopt});
  const std::vector<LogStep> steps = worker.log.TakeSteps();
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].step, 1);
  EXPECT_DOUBLE_EQ(steps[0].loss, 4.5);
  EXPECT_DOUBLE_EQ(steps[0].learning_rate, 6e-4);
  EXPECT_DOUBLE_EQ(steps[0].samples_per_second, 800);
  EXPECT_TRUE(std::isnan(steps[0].validation));
  EXPECT_TRUE(std::isnan(steps[1].loss));
  EXPECT_DOUBLE_EQ(steps[1].validation, 2.75);
  EXPECT_EQ(steps[1].validation_step, 200);
  EXPECT_TRUE(std::isnan(steps[2].learning_rate));
  EXPECT_DOUBLE_EQ(steps[2].validation, 2.25);
  EXPECT_TRUE(worker.log.TakeSteps().empty());
  ASSERT_EQ(worker.log.busy().size(), 2U);
  const BusyReport& busy = worker.log.busy()[1];
  EXPECT_EQ(busy.generation, 4294967297U);
  EXPECT_EQ(busy.rank, 1);
  EXPECT_EQ(busy.step, 250);
  EXPECT_DOUBLE_EQ(busy.seconds, 0.03125);
  EXPECT_DOUBLE_EQ(busy.longest, 0.03125);
  EXPECT_EQ(busy.micro_batches, 3);
  // The line that reported the membership first may have left the log.
  ASSERT_EQ(worker.log.marks().size(), 1U);
  EXPECT_EQ(worker.log.marks()[0].kind, LogMark::Kind::kMember);
  EXPECT_EQ(worker.log.marks()[0].rank, 1);
  EXPECT_EQ(LastLoggedMembership(worker.log.Tail())->transport, "ucx:rc");
}

TEST(LoggedProgress, AMembershipIsOneWhateverElseThePodLogs) {
  LoggingTrainer worker(1, 7);
  worker.Step(1, 4.5);
  worker.Say("trainer member=other pid=3 lost evidence=mutex another trainer of this pod");
  worker.Step(2, 4.25);
  worker.Say("trainer member=other pid=3 ended code=137");
  std::vector<LogMark::Kind> kinds;
  for (const LogMark& mark : worker.log.marks()) kinds.push_back(mark.kind);
  using Kind = LogMark::Kind;
  EXPECT_THAT(kinds, ElementsAre(Kind::kMember, Kind::kLost, Kind::kEnded));
}

TEST(LoggedProgress, ImpossibleLinesAreIgnoredAndAFloodIsBounded) {
  LoggingTrainer worker(0, 1);
  for (const char* line :
       {"step=0 steps=10 loss=1", "step=11 steps=10 loss=1", "step=-1 steps=10", "step=1", "step=x steps=10",
        "step=1 steps=99999999999999999999", "generation=1 step=7 every member"})
    worker.Say(line);
  EXPECT_TRUE(worker.log.TakeSteps().empty());
  for (const char* line : {"step=1 steps=9 generation=1 rank=-1 busy=1 longest=1 micro_batches=1",
                           "step=1 steps=9 generation=1 rank=0 busy=nan longest=1 micro_batches=1",
                           "step=1 steps=9 generation=1 rank=0 busy=1e300 longest=1 micro_batches=1",
                           "step=1 steps=9 generation=1 rank=0 busy=1 longest=1 micro_batches=0"})
    worker.Say(line);
  EXPECT_EQ(worker.log.TakeSteps().size(), 4U);
  EXPECT_TRUE(worker.log.busy().empty());
  for (int i = 0; i < 100'000; ++i)
    worker.Say("step=1 steps=9 generation=1 rank=0 busy=1 longest=1 micro_batches=1");
  EXPECT_EQ(worker.log.busy().size(), WorkerLog::kBusy);
  EXPECT_LE(worker.log.TakeSteps().size(), WorkerLog::kSteps);
}

TEST(LoggedProgress, TheCurveMergesLogsAndTheStatus) {
  ProgressCurve curve;
  curve.Add({400, 2.0, 790, 0.97});  // of the status
  const auto read = [&curve](LoggingTrainer& worker) {
    for (const LogStep& step : worker.log.TakeSteps()) AddToCurve(step, &curve);
  };
  LoggingTrainer one(0, 1), other(1, 1), later(0, 2);
  one.Step(1, 4.5);
  one.Validated({200, 2.75, 0.5});
  one.Step(300, 2.5);
  one.Step(400, 2.015625);
  other.Step(1, 4.5);
  other.Step(299, 2.507815);
  later.Step(300, 9);  // it was done again
  later.Step(500, 1.75);
  later.LastValidation({500, 1.875, std::nullopt});
  read(one);
  const uint64_t version = curve.version(), rewritten = curve.rewritten();
  read(other);
  EXPECT_GT(curve.rewritten(), rewritten) << "a step between others";
  read(later);
  EXPECT_GT(curve.version(), version);
  EXPECT_EQ(curve.Json(0),
            R"({"stride":1,"from":0,"step":[1,299,300,400,500],"loss":[4.5,2.50781,2.5,2,1.75],)"
            R"("low":[4.5,2.50781,2.5,2,1.75],"high":[4.5,2.50781,2.5,2,1.75],)"
            R"("lr":[0.0006,0.0006,0.0006,0.0006,0.0006],"rate":[800,800,800,790,800],)"
            R"("goodput":[null,null,null,0.97,0.97]})");
  EXPECT_EQ(curve.Validations().dump(), R"({"loss":[2.75,1.875],"step":[200,500]})");
  const uint64_t same = curve.version();
  later.Step(500, 1.75);
  read(later);
  EXPECT_EQ(curve.version(), same) << "nothing is new";
  EXPECT_THAT(curve.JsonOfRange(450, 600), HasSubstr(R"("lr":[0.0006],"rate":[800],"goodput":[0.97])"));
}

TEST(LoggedProgress, ALongHistoryIsThinnedInAnyOrderAndKeepsSpikes) {
  ProgressCurve forward, backward;
  const auto point = [](int64_t i) {
    return ProgressCurve::Point{100 * i, i == 7777 ? 50.0 : 1, 800, NAN, 1e-3};
  };
  for (int64_t i = 1; i <= 20'000; ++i) forward.Add(point(i));
  for (int64_t i = 20'000; i >= 1; --i) backward.Add(point(i));
  EXPECT_EQ(forward.Json(0), backward.Json(0));
  EXPECT_LE(forward.size(), ProgressCurve::kMaxPoints);
  EXPECT_GT(forward.size(), ProgressCurve::kMaxPoints / 4);
  EXPECT_THAT(forward.Json(0), HasSubstr(",50,"));
  for (int64_t i = 0; i < 5000; ++i) forward.AddValidation(i, 1);
  EXPECT_LE(forward.Validations()["step"].size(), ProgressCurve::kMaxValidations);
  EXPECT_EQ(forward.Validations()["step"].back(), 4999);
}

class LoggedBusy : public testing::Test {
 protected:
  std::vector<rendezvous::GangBusyTimes> Windows() {
    WorkerLogs logs;
    for (auto& [pod, worker] : workers_) logs[pod] = &worker.log;
    return BusyWindows(LoggedBusyTimes(logs));
  }

  std::map<std::string, LoggingTrainer> workers_;
};

TEST_F(LoggedBusy, AStragglerIsMarkedUntilItIsAsFastAsTheOthers) {
  for (int rank = 0; rank < 3; ++rank)
    workers_.emplace("gpt-1-" + std::to_string(rank), LoggingTrainer(rank, 9));
  const auto window = [this](int64_t step, double of_the_second) {
    workers_.at("gpt-1-0").Step(step, 2, 0.03);
    workers_.at("gpt-1-1").Step(step + 1, 2, of_the_second);
    workers_.at("gpt-1-2").Step(step, 2, 0.031);
  };
  for (int64_t i = 1; i <= rendezvous::StragglerRule::kWindows; ++i) {
    EXPECT_THAT(BusyMessage(Windows())["stragglers"], testing::IsEmpty());
    window(10 * i, 0.06);
  }
  Json message = BusyMessage(Windows());
  EXPECT_EQ(message["workers"], Json({"gpt-1-0", "gpt-1-1", "gpt-1-2"}));
  EXPECT_EQ(message["stragglers"], Json({1}));
  EXPECT_EQ(message["reset"], true);
  EXPECT_EQ(message["windows"].size(), 3U);
  EXPECT_EQ(message["windows"][2].dump(), "[31,[0.03,0.06,0.031],[0.03,0.06,0.031]]");
  for (int64_t i = 4; i <= 6; ++i) window(10 * i, 0.03);
  EXPECT_THAT(BusyMessage(Windows())["stragglers"], testing::IsEmpty());
}

TEST_F(LoggedBusy, ARankThatDoesNotReportIsMissingInItsWindow) {
  for (int rank = 0; rank < 2; ++rank)
    workers_.emplace("gpt-1-" + std::to_string(rank), LoggingTrainer(rank, 9));
  workers_.at("gpt-1-0").Step(10, 2);
  workers_.at("gpt-1-1").Step(10, 2);
  workers_.at("gpt-1-0").Step(20, 2);
  EXPECT_EQ(Windows().size(), 1U) << "the report of the other one may be under way";
  workers_.at("gpt-1-0").Step(30, 2);
  const auto windows = Windows();
  ASSERT_EQ(windows.size(), 2U);
  EXPECT_EQ(windows[1].ranks[1].steps, 0);
}

TEST_F(LoggedBusy, OnlyTheNewestGenerationCounts) {
  workers_.emplace("gpt-1-0", LoggingTrainer(0, 9));
  workers_.emplace("gpt-1-1", LoggingTrainer(0, 10));
  workers_.at("gpt-1-0").Step(10, 2);
  workers_.at("gpt-1-1").Step(5, 2);
  const auto windows = Windows();
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_THAT(*windows[0].pods, ElementsAre("gpt-1-1"));
  workers_.clear();
  EXPECT_TRUE(BusyMessage(Windows()).is_null());
}

}  // namespace
}  // namespace ringmaster::cli
