// SPDX-License-Identifier: Apache-2.0

// The live page of jobs on a cluster: rows, messages, and the gang from logs and Events.
#include "cli/cluster/job_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/history/gang_timeline.h"

namespace ringmaster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using MarkKind = GangTimeline::MarkKind;

constexpr const char* kHostile = "<img src=x onerror=alert(1)>\x1b[31mred\x1b]0;title\a\xe2\x80\xae!";
constexpr const char* kHarmless = "<img src=x onerror=alert(1)>red!";

Json WaitingJob() {
  Json job{{"metadata",
            {{"name", "gpt"},
             {"namespace", "team"},
             {"uid", "u1"},
             {"creationTimestamp", "2026-11-21T09:50:00Z"}}},
           {"spec", {{"framework", "native"}, {"workers", {{"replicas", 4}}}}}};
  job["status"] = {{"phase", "Pending"}, {"attempt", 1}};
  job["status"]["conditions"] = {
      {{"type", "Admitted"}, {"status", "True"}, {"reason", "Accepted"}, {"message", ""}},
      {{"type", "Scheduled"},
       {"status", "False"},
       {"reason", "WaitingForCapacity"},
       {"message", "4 GPUs missing"}}};
  return job;
}

Json TrainingJob(int64_t step, const char* loss) {
  Json job = WaitingJob();
  job["status"]["phase"] = "Running";
  job["status"]["ready"] = "2/2";
  job["status"]["progress"] = {
      {"step", step}, {"totalSteps", 300}, {"loss", loss}, {"samplesPerSecond", "812.5"}, {"eta", "2m05s"}};
  job["status"]["goodput"] = {{"ratio", "0.97"}};
  job["status"]["checkpoint"] = {{"step", 100}, {"path", "/ckpt"}};
  job["status"]["conditions"] = {{{"type", "Progressing"},
                                  {"status", "True"},
                                  {"reason", "StepAdvanced"},
                                  {"message", "step 120 of 300"}}};
  return job;
}

Json ApiEvent(const char* reason, const std::string& note, const char* time, const char* uid = "u1") {
  return {{"metadata", {{"name", note.substr(0, 9)}}},
          {"involvedObject", {{"kind", "TrainingJob"}, {"name", "gpt"}, {"uid", uid}}},
          {"type", "Warning"},
          {"reason", reason},
          {"message", note},
          {"eventTime", time}};
}

TEST(JobPage, ARowSaysWhyAJobWaits) {
  const Json row = JobRow(WaitingJob());
  EXPECT_EQ(row["key"], "team/gpt");
  EXPECT_EQ(row["state"], "waits");
  EXPECT_EQ(row["workers"], "0/4");
  EXPECT_EQ(row["why"], "WaitingForCapacity: 4 GPUs missing");
  EXPECT_TRUE(row["loss"].is_null());
  const Json runs = JobRow(TrainingJob(120, "2.31"));
  EXPECT_EQ(runs["state"], "runs");
  EXPECT_EQ(runs["step"], 120);
  EXPECT_DOUBLE_EQ(runs["loss"].get<double>(), 2.31);
  EXPECT_EQ(JobRow(Json::object())["phase"], "New") << "an object of any shape";
}

TEST(JobPage, TheRunHasTheProgressOfTheStatus) {
  const Json run = JobRun(TrainingJob(120, "2.31"));
  EXPECT_EQ(run["kind"], "job");
  EXPECT_EQ(run["name"], "team/gpt");
  EXPECT_EQ(run["live"], true);
  EXPECT_EQ(run["workers"], "2/2");
  EXPECT_EQ(run["checkpoint"], 100);
  EXPECT_DOUBLE_EQ(run["samplesPerSecond"].get<double>(), 812.5);
  EXPECT_DOUBLE_EQ(run["goodput"].get<double>(), 0.97);
  EXPECT_FALSE(run.contains("failure"));
  Json failed = TrainingJob(120, "2.31");
  failed["status"]["lastFailure"] = {{"pod", "gpt-1-1"}, {"exitCode", 137}, {"time", "2026-11-21T09:56:00Z"}};
  EXPECT_EQ(JobRun(failed)["failure"]["message"], "gpt-1-1: exit code 137")
      << "without an age, which would change";
}

TEST(JobPage, HostileTextBecomesPlain) {
  Json job = WaitingJob();
  job["status"]["phase"] = kHostile;
  job["status"]["conditions"][1]["message"] = kHostile;
  const std::string text = DumpJson(PlainTexts({{"run", JobRun(job)}, {"rows", {JobRow(job)}}}));
  EXPECT_THAT(text, HasSubstr(kHarmless));
  EXPECT_THAT(text, Not(HasSubstr("\\u001b")));
  EXPECT_THAT(text, Not(HasSubstr("\xe2\x80\xae")));
}

TEST(JobPage, WorkersAreSortedByAttemptAndRank) {
  const auto pod = [](const char* attempt, const char* rank) {
    return Json{{"metadata",
                 {{"name", std::string("gpt-") + attempt + "-" + rank},
                  {"labels", {{"ringmaster.dev/attempt", attempt}, {"ringmaster.dev/rank", rank}}}}},
                {"spec", {{"nodeName", "node-1"}}},
                {"status", {{"phase", "Running"}}}};
  };
  const Json items = JobWorkers({pod("1", "0"), pod("2", "10"), pod("2", "2")});
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0]["pod"], "gpt-2-2");
  EXPECT_EQ(items[1]["pod"], "gpt-2-10");
  EXPECT_EQ(items[2]["state"], "Running");
}

TEST(WorkerLog, FindsTheMembershipsInTheLogOfATrainer) {
  WorkerLog log;
  log.Add(
      "2026-11-21T10:00:00.1Z 2026-11-21T10:00:00.100 I trainer generation=4294967297 rank=1 world=4 "
      "transport=rc");
  log.Add(
      "2026-11-21T10:00:00.2Z 2026-11-21T10:00:00.200 I trainer generation=4294967297 rank=1 world=4 "
      "transport=nccl");
  log.Add("2026-11-21T10:00:05Z W trainer generation 4294967297 ended: unavailable: peer 2 is gone");
  log.Add("2026-11-21T10:00:06Z W agent trainer member=1.2 pid=9 lost evidence=mutex the trainer died");
  log.Add("2026-11-21T10:00:06.5Z I agent trainer member=1.2 pid=9 ended code=137");
  log.Add("2026-11-21T10:00:07Z I agent signal 15: leaving");
  log.Add("2026-11-21T10:00:08Z I agent program pid=7 rank=1 of 4 started, incarnation 3");
  log.Add("2026-11-21T10:00:09Z generation=5 rank=9 world=4 transport=x");
  using Kind = LogMark::Kind;
  std::vector<Kind> kinds;
  for (const LogMark& mark : log.marks()) kinds.push_back(mark.kind);
  EXPECT_THAT(kinds, ElementsAre(Kind::kMember, Kind::kPeerLost, Kind::kLost, Kind::kEnded, Kind::kLeaving,
                                 Kind::kMember))
      << "a membership that is logged again is one, and a rank outside of its world is none";
  EXPECT_EQ(log.marks()[0].generation, 4294967297U);
  EXPECT_EQ(log.marks()[0].rank, 1);
  EXPECT_EQ(log.marks()[0].world, 4);
  EXPECT_EQ(kube::WallTimeText(log.marks()[0].at), "2026-11-21T10:00:00.100000Z");
  EXPECT_EQ(log.marks()[2].evidence, "mutex");
  EXPECT_EQ(log.marks()[3].exit_code, 137);
}

TEST(WorkerLog, TheTailOfAFailureEndsAtTheFailure) {
  WorkerLog log;
  log.Add("2026-11-21T10:00:00Z first words");
  log.Add("2026-11-21T10:00:06.2Z W agent trainer member=1.2 pid=9 lost evidence=mutex the trainer died");
  log.Add("2026-11-21T10:00:06.5Z I agent trainer member=1.2 pid=9 ended code=137");
  log.Add("2026-11-21T10:00:06.6Z I agent trainer member=1.3 pid=10 started");
  const std::string failure =
      "first words\nW agent trainer member=1.2 pid=9 lost evidence=mutex the trainer died\n"
      "I agent trainer member=1.2 pid=9 ended code=137\n";
  // The operator reports it a little later, to the second.
  const auto reported = kube::ParseWallTime("2026-11-21T10:00:06Z").value();
  EXPECT_EQ(log.TailOfFailure(reported), failure);
  EXPECT_EQ(log.TailOfFailure(reported + std::chrono::seconds(10)), failure);
  EXPECT_EQ(log.TailOfFailure(reported + std::chrono::minutes(1)), log.Tail()) << "another failure";
  for (size_t i = 0; i <= WorkerLog::kLines; ++i) log.Add("2026-11-21T10:01:00Z later words");
  EXPECT_EQ(log.Tail().find("first words"), std::string::npos);
  EXPECT_EQ(log.TailOfFailure(reported), failure) << "after many more lines";
  log.Add("2026-11-21T11:00:00Z W agent trainer member=1.3 pid=10 lost evidence=mutex ");
  log.Add("2026-11-21T11:00:00Z I agent trainer member=1.3 pid=10 ended code=0");
  EXPECT_EQ(log.TailOfFailure(reported), failure) << "the end of the training is no failure";
}

TEST(WorkerLog, ALogThatIsReadAgainAddsOnlyNewLines) {
  WorkerLog log;
  log.Add("2026-11-21T10:00:00Z one");
  const kube::WallTime known = log.newest();
  log.Add("2026-11-21T10:00:00Z one", known);
  log.Add("2026-11-21T10:00:01Z two\x1b[2J", known);
  EXPECT_EQ(log.Tail(), "one\ntwo\n");
}

TEST(WorkerLog, IsBounded) {
  WorkerLog log;
  for (int i = 0; i < 10'000; ++i)
    log.Add("2026-11-21T10:00:00Z x generation=" + std::to_string(i) + " rank=0 world=1 transport=t" +
            std::string(5000, 'a'));
  EXPECT_LE(log.marks().size(), WorkerLog::kMarks);
  EXPECT_EQ(log.marks().back().generation, 9999U);
  EXPECT_EQ(log.marked(), 10'000U);
  EXPECT_LE(log.Tail().size(), WorkerLog::kLines * (WorkerLog::kLineBytes + 1));
}

class GangOfLogs : public testing::Test {
 protected:
  void Log(const std::string& pod, const std::string& line) { logs_[pod].Add(line); }
  std::vector<RunEvent> Gang(const std::vector<Json>& events = {}, const Json& job = TrainingJob(1, "1")) {
    WorkerLogs logs;
    for (const auto& [pod, log] : logs_) logs[pod] = &log;
    return GangEvents(logs, ReportedEvents(events, job), job);
  }

  std::map<std::string, WorkerLog> logs_;
};

TEST_F(GangOfLogs, AKillInOnePodIsOneFailureWithItsRecovery) {
  Log("gpt-1-0", "2026-11-21T10:00:00Z t generation=1 rank=0 world=2 transport=rc");
  Log("gpt-1-1", "2026-11-21T10:00:00.001Z t generation=1 rank=1 world=2 transport=rc");
  Log("gpt-1-1", "2026-11-21T10:00:10Z a trainer member=1 pid=2 lost evidence=mutex the trainer died");
  Log("gpt-1-0", "2026-11-21T10:00:10.009Z t generation=2 rank=0 world=1 transport=rc");
  Log("gpt-1-0", "2026-11-21T10:00:10.010Z W generation 1 ended: unavailable: late");
  Log("gpt-1-1", "2026-11-21T10:00:10.020Z a trainer member=1 pid=2 ended code=137");
  Log("gpt-1-1", "2026-11-21T10:00:12Z t generation=3 rank=1 world=2 transport=rc");
  Log("gpt-1-0", "2026-11-21T10:00:12Z t generation=3 rank=0 world=2 transport=rc");
  const std::vector<RunEvent> gang =
      Gang({ApiEvent("Exit", "gpt-1-1 ended with exit code 137", "2026-11-21T10:00:11Z"),
            ApiEvent("Exit", "gpt-1-0 of an earlier job", "2026-11-21T09:00:11Z", "u0")});
  const GangTimeline timeline = TimelineOf(gang);
  ASSERT_EQ(timeline.lanes.size(), 2U);
  ASSERT_EQ(timeline.generations.size(), 3U);
  EXPECT_EQ(timeline.generations[1].workers, 1U);
  ASSERT_EQ(timeline.lanes[1].marks.size(), 2U) << "the event and the log are about the same failure";
  EXPECT_EQ(timeline.lanes[1].marks[0].kind, MarkKind::kFailed);
  EXPECT_EQ(timeline.lanes[1].marks[0].text, "gpt-1-1 failed: the trainer died, exit code 137");
  EXPECT_EQ(timeline.lanes[1].marks[1].kind, MarkKind::kJoined);
  ASSERT_EQ(timeline.recoveries.size(), 1U) << "a line of a generation that is over begins no recovery";
  EXPECT_NEAR(timeline.recoveries[0].end - timeline.recoveries[0].begin, 0.009, 1e-5);
  EXPECT_FALSE(timeline.ended);
}

TEST_F(GangOfLogs, PodsWithoutALogAreKnownByTheEvents) {
  Log("gpt-2-0", "2026-11-21T10:00:20Z t generation=7 rank=0 world=2 transport=rc");
  Json hang = ApiEvent("Hang", "gpt-1-1 hung: no progress", "2026-11-21T10:00:10Z");
  hang["series"] = {{"count", 3}, {"lastObservedTime", "2026-11-21T10:00:12Z"}};
  const std::vector<Json> events = {
      ApiEvent("Silent", "gpt-1-0 is unresponsive: stopped", "2026-11-21T10:00:11Z"), hang,
      ApiEvent("Exit", "gpt ended", "2026-11-21T10:00:13Z"),
      ApiEvent("Exit", "other-1-1 ended", "2026-11-21T10:00:13Z")};
  Json job = TrainingJob(300, "1");
  job["status"]["completionTime"] = "2026-11-21T10:01:00Z";
  job["status"]["conditions"] = {{{"type", "Succeeded"}, {"status", "True"}}};
  const GangTimeline timeline = TimelineOf(Gang(events, job));
  ASSERT_EQ(timeline.lanes.size(), 3U) << "notes about no worker of this job name none";
  EXPECT_EQ(timeline.lanes[0].marks[0].kind, MarkKind::kSilent);
  EXPECT_EQ(timeline.lanes[1].marks[0].kind, MarkKind::kHung);
  EXPECT_TRUE(timeline.ended);
  EXPECT_DOUBLE_EQ(timeline.lanes[2].spans[0].end - timeline.lanes[2].spans[0].begin, 40);
  const auto reported = ReportedEvents(events, job);
  ASSERT_EQ(reported.size(), 4U);
  EXPECT_EQ(reported[1].message, "gpt-1-1 hung: no progress (3 times)");
  EXPECT_EQ(reported[1].time, "2026-11-21T10:00:12.000000Z");
}

TEST(ProgressCurve, OfAStatusBeginsWithTheFirstPointAndStaysBounded) {
  ProgressCurve curve;
  EXPECT_EQ(curve.Json(0),
            R"({"stride":1,"from":0,"step":[],"loss":[],"low":[],"high":[],"lr":[],"rate":[],"goodput":[]})");
  curve.Add(*ProgressPoint(TrainingJob(120, "2.5")));
  const uint64_t version = curve.version(), rewritten = curve.rewritten();
  curve.Add(*ProgressPoint(TrainingJob(120, "2.5")));
  EXPECT_EQ(curve.version(), version);
  curve.Add(*ProgressPoint(TrainingJob(130, "NaN")));
  EXPECT_EQ(
      curve.Json(1),
      R"({"stride":1,"from":1,"step":[130],"loss":[null],"low":[null],"high":[null],"lr":[null],"rate":[812.5],"goodput":[0.97]})");
  EXPECT_EQ(curve.version(), version + 1);
  EXPECT_EQ(curve.rewritten(), rewritten) << "appended";
  EXPECT_THAT(curve.JsonOfRange(100, 125), HasSubstr(R"("step":[120])"));
  EXPECT_FALSE(ProgressPoint(WaitingJob()).has_value());
  for (int64_t step = 200; step < 100'000; ++step) curve.Add({step, 1, 2, 3});
  EXPECT_LE(curve.size(), ProgressCurve::kMaxPoints);
  EXPECT_GT(curve.size(), ProgressCurve::kMaxPoints / 4);
  EXPECT_EQ(curve.stride(), 64);
}

}  // namespace
}  // namespace ringmaster::cli
