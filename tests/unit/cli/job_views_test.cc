// SPDX-License-Identifier: Apache-2.0

// What people are shown of a job on a cluster: the screen, the diagnosis, the merged logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cluster/diagnosis.h"
#include "cli/cluster/export_pod.h"
#include "cli/cluster/log_merge.h"
#include "cli/cluster/logged_membership.h"
#include "cli/cluster/status_screen.h"

namespace ringmaster::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const kube::WallTime kNow = *kube::ParseWallTime("2026-11-21T10:00:00Z");

Json ConditionJson(const char* type, const char* status, const char* reason, const char* message = "") {
  return {{"type", type}, {"status", status}, {"reason", reason}, {"message", message}};
}

// A healthy job.
Json RunningJob() {
  Json job = {{"metadata",
               {{"name", "gpt"},
                {"namespace", "team"},
                {"generation", 2},
                {"creationTimestamp", "2026-11-21T09:50:00Z"}}},
              {"spec", {{"framework", "native"}, {"workers", {{"replicas", 2}}}}}};
  job["status"] = {
      {"observedGeneration", 2},
      {"phase", "Running"},
      {"attempt", 3},
      {"ready", "2/2"},
      {"fabric", "rc"},
      {"topology", {{"key", "example.com/leaf"}, {"domains", 2}, {"pods", "s1: 4, s2: 4"}}},
      {"progress",
       {{"step", 120},
        {"totalSteps", 300},
        {"percent", "40%"},
        {"eta", "2m05s"},
        {"samplesPerSecond", "812.3456789"},
        {"loss", "2.310123456789"}}},
      {"checkpoint", {{"step", 100}, {"path", "/ckpt"}}},
      {"goodput", {{"ratio", "0.97"}, {"lostSeconds", {{"restart", 12}, {"queue", 90}, {"x", 0}}}}}};
  job["status"]["conditions"] = {ConditionJson("Admitted", "True", "Accepted"),
                                 ConditionJson("Scheduled", "True", "AllPodsPlaced"),
                                 ConditionJson("Ready", "True", "AllPodsRunning"),
                                 ConditionJson("FabricReady", "True", "GangFormed"),
                                 ConditionJson("Progressing", "True", "StepAdvanced", "step 120 of 300"),
                                 ConditionJson("Degraded", "False", "AsDesired"),
                                 ConditionJson("Suspended", "False", "NotSuspended"),
                                 ConditionJson("Succeeded", "False", "NotFinished"),
                                 ConditionJson("Failed", "False", "NotFailed")};
  return job;
}

void Set(Json& job, const char* type, const char* status, const char* reason, const char* message) {
  for (Json& condition : job["status"]["conditions"])
    if (condition["type"] == type) condition = ConditionJson(type, status, reason, message);
}

Json Worker(int attempt, int rank, const char* node = "node-1") {
  return {{"metadata",
           {{"name", "gpt-" + std::to_string(attempt) + "-" + std::to_string(rank)},
            {"creationTimestamp", "2026-11-21T09:55:00Z"},
            {"labels",
             {{"ringmaster.dev/attempt", std::to_string(attempt)},
              {"ringmaster.dev/rank", std::to_string(rank)}}}}},
          {"spec", {{"nodeName", node}, {"containers", {{{"name", "worker"}}}}}},
          {"status", {{"phase", "Running"}}}};
}

Json FreshLease() {
  return {{"metadata", {{"namespace", "ringmaster-system"}}},
          {"spec",
           {{"holderIdentity", "operator-0_1"},
            {"leaseDurationSeconds", 15},
            {"renewTime", "2026-11-21T09:59:58.000000Z"}}}};
}

Evidence Healthy() {
  Evidence e;
  e.job = RunningJob();
  e.pods = {Worker(3, 0), Worker(3, 1)};
  e.lease = FreshLease();
  e.nodes = {{{"metadata", {{"name", "node-1"}}},
              {"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}}};
  return e;
}

const Check* FindCheck(const std::vector<Check>& checks, const std::string& name) {
  for (const Check& check : checks)
    if (check.name == name) return &check;
  return nullptr;
}

// ---- the screen

TEST(StatusScreen, ShowsTheJobAndEachRank) {
  Json job = RunningJob();
  job["status"]["generation"] = 17;
  const std::string screen = StatusScreen(
      job, {Worker(3, 0), Worker(3, 1, "node-22"), Worker(3, 2)},
      {{"gpt-3-0", {17, "ucx:rc"}}, {"gpt-3-1", {18, "ucx:rc+cma"}}, {"gpt-3-2", {16, "ucx:rc"}}}, kNow);
  EXPECT_EQ(screen,
            "team/gpt  Running  2/2 workers ready  attempt 3  age 10m00s\n"
            "  why           step 120 of 300\n"
            "  progress      step 120 of 300 (40%), ETA 2m05s, 812.3 samples/s, loss 2.31\n"
            "  fabric        rc\n"
            "  topology      2 domains of example.com/leaf (s1: 4, s2: 4)\n"
            "  checkpoint    of step 100, in /ckpt\n"
            "  goodput       0.97 of the time in steps that count; queue 1m30s; restart 12s\n"
            "\n"
            "  RANK  POD      NODE     AGE    STEP  TRANSPORT   STATE\n"
            "  0     gpt-3-0  node-1   5m00s  120   ucx:rc      Running\n"
            "  1     gpt-3-1  node-22  5m00s  120   ucx:rc+cma  Running\n"
            "  2     gpt-3-2  node-1   5m00s  -     -           Running\n");  // of an earlier generation
}

TEST(WatchScreen, HasProgressLossesAndALinePerWorker) {
  const LiveScreen screen =
      WatchScreen(RunningJob(), {Worker(3, 0), Worker(2, 1), Worker(3, 2)}, {5, 2.31},
                  {{"gpt-3-0", {0.0123, false}}, {"gpt-3-2", {0.0306, true}}, {"gpt-9-9", {1, true}}});
  EXPECT_EQ(screen.title, "team/gpt  Running");
  EXPECT_EQ(screen.step, 120);
  EXPECT_EQ(screen.total_steps, 300);
  EXPECT_EQ(screen.numbers, "812.3 samples/s  ETA 2m05s");
  EXPECT_EQ(screen.loss, "2.31");
  EXPECT_EQ(screen.losses.size(), 2U);
  ASSERT_EQ(screen.workers.size(), 2U) << "one pod is of an earlier attempt";
  EXPECT_EQ(screen.workers[0].name, "gpt-3-0");
  EXPECT_EQ(screen.workers[0].text, "Running on node-1, busy 12.30 ms per step");
  EXPECT_EQ(screen.workers[0].state, LiveScreen::Worker::State::kMember);
  EXPECT_EQ(screen.workers[1].text, "Running on node-1, busy 30.60 ms per step, slow");
  EXPECT_EQ(screen.workers[1].state, LiveScreen::Worker::State::kSlow);
  EXPECT_EQ(screen.workers_alive, 2);
}

TEST(LoggedMembership, TheLastMembershipInTheLogIsFound) {
  const auto membership = LastLoggedMembership(
      "2026-11-21T10:00:01Z 2026-11-21T10:00:01.000 I trainer pod=a member=x generation=4294967297 rank=0 "
      "world=2 "
      "transport=ucx:tcp\n"
      "2026-11-21T10:00:02Z 2026-11-21T10:00:02.000 I trainer pod=a member=x generation=4294967299 rank=1 "
      "world=3 "
      "transport=shm\n"
      "2026-11-21T10:00:03Z 2026-11-21T10:00:03.000 W trainer pod=a member=x generation 4294967299 ended: "
      "lost\n");
  ASSERT_TRUE(membership.has_value());
  EXPECT_EQ(membership->generation, 4294967299);
  EXPECT_EQ(membership->transport, "shm");
  EXPECT_FALSE(LastLoggedMembership("").has_value());
  EXPECT_FALSE(LastLoggedMembership("\n\n").has_value());
  EXPECT_FALSE(
      LastLoggedMembership("x generation=12y rank=1 transport=shm\n generation=12 rank=1").has_value());
}

TEST(StatusScreen, TheEarliestProblemExplainsThePhase) {
  Json job = RunningJob();
  Set(job, "Degraded", "True", "BelowTarget", "1 of 2 workers");
  EXPECT_EQ(ExplainPhase(job), "BelowTarget: 1 of 2 workers");
  Set(job, "Scheduled", "False", "WaitingForCapacity", "needs 8 x nvidia.com/gpu");
  EXPECT_EQ(ExplainPhase(job), "WaitingForCapacity: needs 8 x nvidia.com/gpu");
  Set(job, "Failed", "True", "RestartBudgetSpent", "boom");
  EXPECT_EQ(ExplainPhase(job), "RestartBudgetSpent: boom");
  job = RunningJob();
  Set(job, "Progressing", "Unknown", "NotReported", "");
  EXPECT_THAT(ExplainPhase(job), HasSubstr("does not report its steps"));
}

TEST(StatusScreen, AJobWithoutStatusWasNotSeenYet) {
  Json job = RunningJob();
  job.erase("status");
  const std::string screen = StatusScreen(job, {}, {}, kNow);
  EXPECT_THAT(screen, HasSubstr("team/gpt  New  age 10m00s"));
  EXPECT_THAT(screen, HasSubstr("has not seen the job yet"));
  EXPECT_THAT(screen, Not(HasSubstr("RANK")));
}

TEST(StatusScreen, ShowsTheLastFailureAndExcludedNodes) {
  Json job = RunningJob();
  job["status"]["restarts"] = {{"total", 2}, {"charged", 1}};
  job["status"]["lastFailure"] = {
      {"pod", "gpt-2-1"},      {"node", "node-7"},           {"exitCode", 137},
      {"reason", "OOMKilled"}, {"message", "out of memory"}, {"time", "2026-11-21T09:57:00Z"}};
  job["status"]["excludedNodes"] = {
      {{"name", "node-7"}, {"until", "2026-11-21T11:00:00Z"}, {"reason", "Exit"}},
      {{"name", "node-8"},
       {"until", "2026-11-21T11:00:00Z"},
       {"reason", "NodeUnreachable"},
       {"effect", "PreferNoSchedule"}}};
  const std::string screen = StatusScreen(job, {}, {}, kNow);
  EXPECT_THAT(screen, HasSubstr("2, of which 1 count against the 10 of restart.maxRestarts"));
  EXPECT_THAT(screen, HasSubstr("gpt-2-1 on node-7, 3m00s ago: exit code 137 (OOMKilled): out of memory"));
  EXPECT_THAT(screen, HasSubstr("node-7 for 1h00m (Exit); node-8 for 1h00m (NodeUnreachable: used only if no "
                                "other node has room)"));
}

TEST(StatusScreen, PodStateNamesWhatThePodWaitsFor) {
  Json pod = Worker(3, 0);
  pod["status"] = {
      {"phase", "Pending"},
      {"containerStatuses",
       {{{"state", {{"waiting", {{"reason", "ImagePullBackOff"}, {"message", "no such image"}}}}}}}}};
  EXPECT_EQ(PodState(pod), "ImagePullBackOff: no such image");
  pod["status"] = {
      {"phase", "Failed"},
      {"containerStatuses", {{{"state", {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}}}}}}};
  EXPECT_EQ(PodState(pod), "ended with exit code 137 (OOMKilled)");
  pod["status"] = {{"phase", "Pending"}};
  pod["spec"]["schedulingGates"] = {{{"name", "ringmaster.dev/gang"}}};
  EXPECT_EQ(PodState(pod), "held back until all workers fit");
  pod["spec"].erase("schedulingGates");
  pod["status"]["conditions"] = {
      {{"type", "PodScheduled"}, {"status", "False"}, {"message", "0/4 nodes are available"}}};
  EXPECT_EQ(PodState(pod), "Pending: 0/4 nodes are available");
}

TEST(StatusScreen, ValuesOfTheWrongTypeAreOmitted) {
  Json job = RunningJob();
  job["status"] = {{"phase", 7}, {"conditions", "none"}, {"goodput", Json::array()}, {"excludedNodes", 3}};
  EXPECT_THAT(StatusScreen(job, {Json::array(), Json(3)}, {}, kNow), HasSubstr("team/gpt  New"));
}

// ---- the diagnosis

TEST(Diagnosis, AHealthyJobPassesEveryCheck) {
  const auto checks = Diagnose(Healthy(), kNow);
  EXPECT_GE(checks.size(), 12U);
  for (const Check& check : checks) EXPECT_EQ(check.result, CheckResult::kPass) << DiagnosisText(checks);
  EXPECT_EQ(checks.front().name, "an operator is leading");
}

TEST(Diagnosis, EveryFailedCheckHasARemedy) {
  Evidence e = Healthy();
  e.lease["spec"]["renewTime"] = "2026-11-21T09:50:00.000000Z";
  e.job["metadata"]["generation"] = 5;
  e.job["status"]["fabric"] = "ucx:tcp";
  Set(e.job, "FabricReady", "False", "TCPFallback", "RDMA was asked for and gradients travel over ucx:tcp");
  e.job["status"]["restarts"] = {{"charged", 11}};
  Set(e.job, "Admitted", "False", "QuotaExceeded", "exceeded quota: gpus");
  Set(e.job, "Scheduled", "False", "Unschedulable", "0/4 nodes");
  Set(e.job, "Ready", "False", "ImagePullFailed", "no such image");
  e.pods[1]["status"] = {{"phase", "Pending"}};
  e.nodes[0]["status"]["conditions"][0]["status"] = "Unknown";
  const auto checks = Diagnose(e, kNow);
  int failed = 0;
  for (const Check& check : checks) {
    if (check.result != CheckResult::kFail) continue;
    failed += 1;
    EXPECT_FALSE(check.remedy.empty()) << check.name;
    EXPECT_FALSE(check.finding.empty()) << check.name;
  }
  EXPECT_EQ(failed, 9) << DiagnosisText(checks);
  EXPECT_THAT(FindCheck(checks, "the job is admitted")->remedy, HasSubstr("Raise it"));
  // A gang that fell back to TCP is connected.
  EXPECT_EQ(FindCheck(checks, "the workers are connected")->result, CheckResult::kPass);
  EXPECT_EQ(FindCheck(checks, "gradients use the requested fabric")->finding,
            "the job requests RDMA and runs over ucx:tcp");
  EXPECT_THAT(DiagnosisText(checks),
              HasSubstr("BAD the job is admitted: QuotaExceeded: exceeded quota: gpus\n      -> "));
}

TEST(Diagnosis, EvidenceThatCannotBeReadIsUnknown) {
  Evidence e = Healthy();
  e.lease = Json();
  e.lease_problem = "leases is forbidden";
  e.nodes.clear();
  e.nodes_problem = "nodes is forbidden";
  const auto checks = Diagnose(e, kNow);
  EXPECT_EQ(FindCheck(checks, "an operator is leading")->result, CheckResult::kUnknown);
  EXPECT_EQ(FindCheck(checks, "the nodes are ready")->result, CheckResult::kUnknown);
}

TEST(Diagnosis, AJobWithoutStatusWasNotSeen) {
  Evidence e = Healthy();
  e.job.erase("status");
  e.pods.clear();
  EXPECT_EQ(FindCheck(Diagnose(e, kNow), "the operator has seen the job")->result, CheckResult::kFail);
  e.job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  EXPECT_THAT(FindCheck(Diagnose(e, kNow), "the operator has seen the job")->finding,
              HasSubstr("multikueue"));
  e.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team";
  EXPECT_THAT(FindCheck(Diagnose(e, kNow), "the operator has seen the job")->remedy,
              HasSubstr("admission checks of its Workload"));
  e.job["status"]["phase"] = "Running";
  EXPECT_EQ(FindCheck(Diagnose(e, kNow), "the operator has seen the job")->result, CheckResult::kPass);
}

TEST(Diagnosis, WorkersOfAnEndedJobAreNotChecked) {
  Evidence e = Healthy();
  e.pods.clear();
  Set(e.job, "Failed", "True", "BadConfiguration", "no such path /data/typo");
  const auto checks = Diagnose(e, kNow);
  EXPECT_EQ(FindCheck(checks, "every pod is running"), nullptr);
  EXPECT_THAT(FindCheck(checks, "the job has not failed")->remedy,
              HasSubstr("Correct what the message names"));
}

TEST(Diagnosis, WarningsAreListedNewestFirst) {
  Evidence e = Healthy();
  for (const char* minute : {"09:10", "09:20", "09:30", "09:40"})
    e.events.push_back({{"type", "Warning"},
                        {"reason", "Exit"},
                        {"message", std::string("at ") + minute},
                        {"eventTime", "2026-11-21T" + std::string(minute) + ":00.000000Z"}});
  const auto checks = Diagnose(e, kNow);
  EXPECT_EQ(FindCheck(checks, "there are no recent warnings")->finding,
            "20m00s ago Exit: at 09:40; 30m00s ago Exit: at 09:30; 40m00s ago Exit: at 09:20");
}

// ---- the pod that exports

TEST(ExportPodTest, HasTheVolumesOfAWorkerWithoutItsTokensAndDevices) {
  Json worker = Worker(3, 0);
  worker["spec"]["schedulingGates"] = {{{"name", "ringmaster.dev/gang"}}};
  worker["spec"]["hostNetwork"] = true;
  worker["spec"]["runtimeClassName"] = "gvisor";
  worker["spec"]["priorityClassName"] = "batch";
  worker["spec"]["serviceAccountName"] = "trainer";
  worker["spec"]["imagePullSecrets"] = {{{"name", "pull"}}};
  worker["spec"]["volumes"] = {{{"name", "ringmaster-config"}, {"projected", {{"sources", Json::array()}}}},
                               {{"name", "ringmaster-shm"}, {"emptyDir", {{"medium", "Memory"}}}},
                               {{"name", "ckpt"}, {"persistentVolumeClaim", {{"claimName", "ckpt"}}}}};
  worker["spec"]["containers"][0] = {
      {"name", "worker"},
      {"image", "site/worker:2"},
      {"env", {{{"name", "RINGMASTER_SECRET_FILE"}, {"value", "/x"}}}},
      {"resources",
       {{"limits", {{"nvidia.com/gpu", 8}, {"memory", "4Gi"}}},
        {"requests", {{"cpu", "2"}, {"memory", "4Gi"}, {"rdma/hca", 1}}},
        {"claims", {{{"name", "gpus"}}}}}},
      {"securityContext", {{"allowPrivilegeEscalation", false}}},
      {"volumeMounts",
       {{{"name", "ringmaster-config"}, {"mountPath", "/c"}}, {{"name", "ckpt"}, {"mountPath", "/ckpt"}}}}};
  const Json pod = ExportPod(worker, "gpt", "uid-1", "/ckpt", "/ckpt/m.safetensors");
  EXPECT_EQ(pod["metadata"]["name"], "gpt-export");
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], "uid-1");
  EXPECT_FALSE(pod["metadata"]["labels"].contains("ringmaster.dev/job"));
  const Json& spec = pod["spec"];
  EXPECT_EQ(spec["volumes"].size(), 1U);
  EXPECT_EQ(spec["imagePullSecrets"][0]["name"], "pull");
  for (const char* field : {"schedulingGates", "hostNetwork", "nodeName"})
    EXPECT_FALSE(spec.contains(field)) << field;
  const Json& container = spec["containers"][0];
  EXPECT_EQ(container["image"], "site/worker:2");
  EXPECT_EQ(container["command"], Json({"ringmaster", "export", "/ckpt", "--to", "/ckpt/m.safetensors"}));
  EXPECT_EQ(container["volumeMounts"].size(), 1U);
  EXPECT_EQ(container["securityContext"]["allowPrivilegeEscalation"], false);
  EXPECT_FALSE(container.contains("env"));
  EXPECT_EQ(container["resources"], Json::parse(R"({"limits": {"memory": "4Gi"},
                                                   "requests": {"cpu": "2", "memory": "4Gi"}})"));
  // A quota, a policy or a registry may depend on them.
  EXPECT_EQ(spec["runtimeClassName"], "gvisor");
  EXPECT_EQ(spec["priorityClassName"], "batch");
  EXPECT_EQ(spec["serviceAccountName"], "trainer");
  EXPECT_EQ(spec["automountServiceAccountToken"], false);
}

// ---- logs

TEST(LogMerge, LinesAreOrderedByTimeAndEachLogKeepsItsOrder) {
  const std::string zero =
      "2026-11-21T10:00:00.1Z a\n2026-11-21T10:00:02.123456789Z d\n2026-11-21T10:00:01Z e late, but after "
      "d\n";
  const std::string one = "2026-11-21T10:00:00.12Z b\nno time\n2026-11-21T10:00:02Z c";
  EXPECT_EQ(MergeLogs({{"0", zero}, {"10", one}}),
            "[ 0] a\n[10] b\n[10] no time\n[10] c\n[ 0] d\n[ 0] e late, but after d\n");
  EXPECT_EQ(MergeLogs({}), "");
  EXPECT_EQ(WithoutTime("2026-11-21T10:00:00.1Z a b"), "a b");
  EXPECT_EQ(WithoutTime("a b"), "a b");
}

}  // namespace
}  // namespace ringmaster::cli
