// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/queue_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ringmaster::cli {
namespace {

using testing::ElementsAre;

const kube::WallTime kScreenTime = *kube::ParseWallTime("2026-11-24T10:00:00Z");

Json QueuedJob(const char* name, const char* created, const char* priority = "", int replicas = 2) {
  Json job = {{"metadata", {{"name", name}, {"namespace", "ml"}, {"creationTimestamp", created}}},
              {"spec", {{"framework", "native"}, {"workers", {{"replicas", replicas}}}}},
              {"status", {{"phase", "Pending"}}}};
  if (*priority != '\0') job["spec"]["scheduling"]["priorityClassName"] = priority;
  job["status"]["conditions"] = {{{"type", "Scheduled"},
                                  {"status", "False"},
                                  {"reason", "WaitingForCapacity"},
                                  {"message", "needs 2 x nvidia.com/gpu"},
                                  {"lastTransitionTime", "2026-11-24T09:57:00Z"}}};
  return job;
}

Json ClassJson(const char* name, int64_t value, bool is_default = false) {
  return {{"metadata", {{"name", name}}}, {"value", value}, {"globalDefault", is_default}};
}

std::vector<std::string> NamesOf(const std::vector<QueueRow>& rows) {
  std::vector<std::string> names;
  for (const QueueRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(QueueScreenTest, TheTurnIsThatOfTheOperator) {
  Json holds_pods = QueuedJob("holds-pods", "2026-11-24T09:50:00Z");
  holds_pods["status"]["replicas"] = 1;
  Json grows = QueuedJob("grows", "2026-11-24T09:00:00Z", "urgent");
  grows["status"]["phase"] = "Running";
  grows["status"]["replicas"] = 1;
  const std::vector<Json> jobs = {QueuedJob("older", "2026-11-24T09:30:00Z"),
                                  grows,
                                  QueuedJob("urgent", "2026-11-24T09:40:00Z", "urgent"),
                                  QueuedJob("same-second", "2026-11-24T09:30:00Z"),
                                  holds_pods,
                                  QueuedJob("low", "2026-11-24T08:00:00Z", "low")};
  const std::vector<Json> classes = {ClassJson("urgent", 1000), ClassJson("low", -5)};
  EXPECT_THAT(NamesOf(QueueOf(jobs, classes)),
              ElementsAre("holds-pods", "urgent", "older", "same-second", "low", "grows"));
  const std::vector<Json> with_default = {ClassJson("urgent", 1000), ClassJson("low", -5),
                                          ClassJson("usual", -7, true), ClassJson("other", 3, true)};
  EXPECT_THAT(NamesOf(QueueOf(jobs, with_default)),
              ElementsAre("holds-pods", "urgent", "low", "older", "same-second", "grows"))
      << "of two defaults the API server takes the lower one";
  EXPECT_THAT(NamesOf(QueueOf(jobs, std::nullopt)),
              ElementsAre("holds-pods", "low", "older", "same-second", "urgent", "grows"));
}

TEST(QueueScreenTest, OnlyJobsThatWaitAreShown) {
  Json runs = QueuedJob("runs", "2026-11-24T09:30:00Z");
  runs["status"]["conditions"][0]["status"] = "True";
  Json ended = QueuedJob("ended", "2026-11-24T09:30:00Z");
  ended["status"]["conditions"].push_back({{"type", "Failed"}, {"status", "True"}});
  Json suspended = QueuedJob("suspended", "2026-11-24T09:30:00Z");
  suspended["spec"]["suspend"] = true;
  Json new_job = QueuedJob("new", "2026-11-24T09:59:58Z");
  new_job.erase("status");
  const std::vector<QueueRow> rows = QueueOf({new_job, runs, ended, suspended}, std::vector<Json>());
  EXPECT_THAT(NamesOf(rows), ElementsAre("new"));
  EXPECT_EQ(rows[0].position, 0) << "the operator has not looked for room yet";
}

TEST(QueueScreenTest, Screen) {
  Json refused = QueuedJob("refused", "2026-11-24T09:10:00Z", "missing", 3);
  refused["spec"]["roles"] = {{{"name", "chief"}}, {{"name", "ps"}, {"replicas", 2}}, {{"name", "master"}}};
  refused["status"]["conditions"] = {{{"type", "Admitted"},
                                      {"status", "False"},
                                      {"reason", "NoPriorityClass"},
                                      {"message", "the cluster has no PriorityClass missing"}},
                                     {{"type", "Scheduled"},
                                      {"status", "False"},
                                      {"reason", "NoPriorityClass"},
                                      {"lastTransitionTime", "2026-11-24T09:59:00Z"}}};
  Json elsewhere = QueuedJob("elsewhere", "2026-11-24T08:00:00Z");
  elsewhere["metadata"]["namespace"] = "team-b";
  const std::vector<QueueRow> rows =
      QueueOf({refused, QueuedJob("gpt", "2026-11-24T09:30:00Z", "urgent", 8), elsewhere},
              std::vector<Json>{ClassJson("urgent", 9)});
  EXPECT_EQ(
      QueueScreen(rows, "", kScreenTime),
      "POSITION  JOB               PRIORITY     PODS  WAITS  WHY\n"
      "1         ml/gpt            9 (urgent)   8     3m00s  WaitingForCapacity: needs 2 x nvidia.com/gpu\n"
      "2         team-b/elsewhere  0            2     3m00s  WaitingForCapacity: needs 2 x nvidia.com/gpu\n"
      "-         ml/refused        0 (missing)  6     1m00s  NoPriorityClass: the cluster has no "
      "PriorityClass missing\n");
  EXPECT_EQ(
      QueueScreen(rows, "team-b", kScreenTime),
      "POSITION  JOB               PRIORITY  PODS  WAITS  WHY\n"
      "2         team-b/elsewhere  0         2     3m00s  WaitingForCapacity: needs 2 x nvidia.com/gpu\n");
  EXPECT_EQ(QueueScreen(rows, "team-c", kScreenTime), "no job waits in namespace team-c\n");
  EXPECT_EQ(QueueScreen({}, "", kScreenTime), "no job waits\n");
}

TEST(QueueScreenTest, WhoMakesRoomForWhom) {
  Json head = QueuedJob("head", "2026-11-24T09:30:00Z", "urgent");
  head["status"]["conditions"][0]["reason"] = "Preempting";
  head["status"]["conditions"][0]["message"] = "needs 2 x nvidia.com/gpu; preempts ml/small (4 to 2 workers)";
  Json victim = QueuedJob("victim", "2026-11-24T08:00:00Z");
  victim["status"]["conditions"].push_back({{"type", "Preempted"},
                                            {"status", "True"},
                                            {"reason", "PreemptedWhole"},
                                            {"message", "ml/head (priority 9) needs room"}});
  const std::vector<QueueRow> rows = QueueOf({victim, head}, std::vector<Json>{ClassJson("urgent", 9)});
  EXPECT_THAT(NamesOf(rows), ElementsAre("head", "victim"));
  EXPECT_EQ(rows[0].position, 1);
  EXPECT_EQ(rows[0].why, "Preempting: needs 2 x nvidia.com/gpu; preempts ml/small (4 to 2 workers)");
  EXPECT_EQ(rows[1].why,
            "WaitingForCapacity: needs 2 x nvidia.com/gpu (preempted: ml/head (priority 9) needs room)");
}

Json Of(const char* space, Json job) {
  job["metadata"]["namespace"] = space;
  return job;
}

std::vector<std::pair<std::string, std::pair<int, int>>> PositionsOf(const std::vector<QueueRow>& rows) {
  std::vector<std::pair<std::string, std::pair<int, int>>> positions;
  for (const QueueRow& row : rows) positions.push_back({row.name, {row.position, row.last}});
  return positions;
}

TEST(QueueScreenTest, SharesDecideBetweenNamespacesOfOnePriority) {
  const Json other = Of("team-b", QueuedJob("other", "2026-11-24T09:20:00Z"));
  const std::vector<Json> classes = {ClassJson("urgent", 9)};
  EXPECT_TRUE(SharesDecide(QueueOf({other, QueuedJob("a", "2026-11-24T09:30:00Z")}, classes)));
  EXPECT_FALSE(SharesDecide(QueueOf({other, QueuedJob("a", "2026-11-24T09:30:00Z", "urgent")}, classes)));
}

// Where the operator may take either of two jobs first, no position claims to know which.
TEST(QueueScreenTest, APositionIsARangeWhereSharesDecide) {
  Json stuck = Of("team-b", QueuedJob("stuck", "2026-11-24T09:50:00Z"));
  Json also_stuck = QueuedJob("also-stuck", "2026-11-24T09:51:00Z");
  for (Json* job : {&stuck, &also_stuck}) (*job)["status"]["replicas"] = 1;
  const std::vector<Json> jobs = {stuck,
                                  also_stuck,
                                  QueuedJob("urgent", "2026-11-24T09:40:00Z", "urgent"),
                                  QueuedJob("a1", "2026-11-24T09:00:00Z"),
                                  QueuedJob("a2", "2026-11-24T09:01:00Z"),
                                  Of("team-b", QueuedJob("b1", "2026-11-24T09:02:00Z")),
                                  QueuedJob("a3", "2026-11-24T09:03:00Z"),
                                  Of("team-b", QueuedJob("low", "2026-11-24T08:00:00Z", "low"))};
  const std::vector<Json> classes = {ClassJson("urgent", 9), ClassJson("low", -5)};
  const std::vector<QueueRow> rows = QueueOf(jobs, classes);
  using Row = std::pair<std::string, std::pair<int, int>>;
  EXPECT_THAT(PositionsOf(rows), ElementsAre(Row{"stuck", {1, 1}}, Row{"also-stuck", {2, 2}},
                                             Row{"urgent", {3, 3}}, Row{"a1", {4, 5}}, Row{"a2", {5, 6}},
                                             Row{"b1", {4, 7}}, Row{"a3", {6, 7}}, Row{"low", {8, 8}}));
  EXPECT_EQ(QueueScreen({rows[5]}, "", kScreenTime),
            "POSITION  JOB        PRIORITY  PODS  WAITS  WHY\n"
            "4-7       team-b/b1  0         2     3m00s  WaitingForCapacity: needs 2 x nvidia.com/gpu\n");
}

}  // namespace
}  // namespace ringmaster::cli
