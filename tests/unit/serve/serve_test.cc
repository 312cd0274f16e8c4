// SPDX-License-Identifier: Apache-2.0

// Access reviews, health checks and metrics, served over real sockets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operator/serve/access_reviewer.h"
#include "operator/serve/health.h"
#include "operator/serve/metrics.h"
#include "tests/unit/http/raw_client.h"
#include "tests/unit/kube_client/held_requests.h"

namespace ringmaster::serve {
namespace {

using http::Get;
using http::Start;

TEST(AccessReviewer, AnAnswerMayComeAfterItsEnd) {
  kube::HeldRequests http;
  kube::ApiClient api(http);
  auto reviewer = std::make_unique<AccessReviewer>(api);
  std::vector<Access> decided;
  const auto review = [&] {
    reviewer->Review("t0k", "/metrics", [&](Access access) { decided.push_back(access); });
  };
  const char* const known = R"({"status": {"authenticated": true, "user": {"username": "scraper"}}})";
  review();
  http.Answer(known);
  ASSERT_EQ(http.waiting.size(), 1U) << "it asks whether this user may read";
  http.Answer(R"({"status": {"allowed": false}})");
  EXPECT_EQ(decided, std::vector{Access::kForbidden});

  auto ended = std::make_unique<AccessReviewer>(api);
  ended->Review("t0k", "/metrics", [&](Access access) { decided.push_back(access); });
  ended.reset();
  http.Answer(known);
  EXPECT_TRUE(http.waiting.empty()) << "nothing is asked for it any more";
  EXPECT_EQ(decided.back(), Access::kUnavailable);
}

TEST(Health, NamesTheProblem) {
  std::string problem;
  const auto server = Start(HealthHandler({}, {{"caches", [&] { return problem; }}}));
  EXPECT_NE(Get(server->port(), "/healthz").find("\r\n\r\nok"), std::string::npos);
  EXPECT_NE(Get(server->port(), "/readyz").find("\r\n\r\nok"), std::string::npos);
  EXPECT_NE(Get(server->port(), "/readyz?verbose").find("[+]ping ok\n[+]caches ok\nreadyz check passed"),
            std::string::npos);
  problem = "pods are not listed yet";
  const std::string answer = Get(server->port(), "/readyz");
  EXPECT_NE(answer.find("503"), std::string::npos);
  EXPECT_NE(answer.find("[-]caches failed: pods are not listed yet\nreadyz check failed"), std::string::npos);
  EXPECT_NE(Get(server->port(), "/healthz").find("200"), std::string::npos);
  EXPECT_NE(Get(server->port(), "/else").find("404"), std::string::npos);
}

TEST(Metrics, HasTheNamesOfExistingDashboards) {
  Metrics metrics;
  metrics.Reconciled("success", milliseconds(3));
  metrics.Reconciled("error", milliseconds(3));
  metrics.Requested("PATCH", 200, milliseconds(7));
  metrics.Requested("GET", 0, milliseconds(7));
  metrics.RequestRetried("PATCH", 429);
  metrics.QueueWaited(milliseconds(20), milliseconds(30));
  metrics.Restarted(true);
  metrics.JobEnded(false, "NoProgress");
  metrics.FirstStep(seconds(12));
  metrics.Leading("ringmaster-operator", true);
  Metrics::Gauges now;
  now.queue_depth = 4;
  now.writes_in_flight = 7;
  now.workers_connected = 5;
  now.queue_adds = 10;
  now.queue_retries = 3;
  now.events_dropped = 6;
  now.cached_objects = {{"pods", 9}};
  now.jobs_by_phase = {{"Pending", 2}, {"Running", 0}};
  now.workers_by_gpu = {{{"NVIDIA H200", "580.95"}, 8}, {{"NVIDIA A100", "570.1"}, 2}};
  now.samples_per_second = {{{"ml", "gpt"}, 1}, {{"ml", "ended"}, 2}};
  now.goodput = {{{"ml", "gpt"}, 3}, {{"ml", "ended"}, 4}};
  now.queue_lengths = {{"ml", 3}, {"without-jobs", 2}};
  metrics.SetGauges([&] { return now; });
  metrics.Text();
  now.jobs_by_phase = {{"Pending", 0}, {"Running", 2}};
  now.queue_adds = 11;
  now.workers_by_gpu = {{{"NVIDIA H200", "580.95"}, 7}};
  now.samples_per_second = {{{"ml", "gpt"}, 512.5}};
  now.goodput = {{{"ml", "gpt"}, 480.25}};
  now.queue_lengths = {{"ml", 0}, {"vision", 5}};
  now.workers_with_device_fault = 1;
  now.stragglers = 3;
  metrics.StepImbalance(1.07);
  metrics.WorkerBusy({{"a-0", 0.25}, {"a-1", 0.5}});
  metrics.WorkerBusy({{"a-1", 0.75}});
  const std::string text = metrics.Text();
  for (const char* line : {
           "controller_runtime_reconcile_total{controller=\"trainingjob\",result=\"success\"} 1",
           "controller_runtime_reconcile_errors_total{controller=\"trainingjob\"} 1",
           "controller_runtime_reconcile_time_seconds_count{controller=\"trainingjob\"} 2",
           "workqueue_depth{controller=\"trainingjob\",name=\"trainingjob\"} 4",
           "rest_client_requests_total{code=\"200\",method=\"PATCH\"} 1",
           "rest_client_requests_total{code=\"<error>\",method=\"GET\"} 1",
           "leader_election_master_status{name=\"ringmaster-operator\"} 1",
           "workqueue_adds_total{controller=\"trainingjob\",name=\"trainingjob\"} 11",
           "workqueue_retries_total{controller=\"trainingjob\",name=\"trainingjob\"} 3",
           "workqueue_queue_duration_seconds_count{controller=\"trainingjob\",name=\"trainingjob\"} 1",
           "workqueue_work_duration_seconds_count{controller=\"trainingjob\",name=\"trainingjob\"} 1",
           "controller_runtime_active_workers{controller=\"trainingjob\"} 7",
           "rest_client_request_retries_total{code=\"429\",verb=\"PATCH\"} 1",
           "ringmaster_jobs{phase=\"Running\"} 2",
           "ringmaster_jobs{phase=\"Pending\"} 0",
           "ringmaster_restarts_total{charged=\"true\"} 1",
           "ringmaster_restarts_total{charged=\"false\"} 0",
           "ringmaster_jobs_ended_total{outcome=\"Failed\",reason=\"NoProgress\"} 1",
           "ringmaster_first_step_seconds_count 1",
           "ringmaster_events_dropped_total 6",
           "ringmaster_workers_connected 5",
           "ringmaster_gpu_workers{driver=\"580.95\",gpu=\"NVIDIA H200\"} 7",
           "ringmaster_gpu_workers{driver=\"570.1\",gpu=\"NVIDIA A100\"} 0",
           "ringmaster_gpu_workers_in_trouble 1",
           "ringmaster_stragglers 3",
           "ringmaster_step_imbalance_ratio_bucket{le=\"1.1\"} 1",
           "ringmaster_worker_step_busy_seconds{worker=\"a-1\"} 0.75",
           "ringmaster_job_samples_per_second{job_namespace=\"ml\",trainingjob=\"gpt\"} 512.5",
           "ringmaster_job_goodput_samples_per_second{job_namespace=\"ml\",trainingjob=\"gpt\"} 480.25",
           "ringmaster_queue_length{job_namespace=\"ml\"} 0",
           "ringmaster_queue_length{job_namespace=\"vision\"} 5",
           "ringmaster_cached_objects{kind=\"pods\"} 9",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find("a-0"), std::string::npos) << "a worker that left has no value";
  EXPECT_EQ(text.find("trainingjob=\"ended\""), std::string::npos) << "a job that does not train has none";
  EXPECT_EQ(text.find("without-jobs"), std::string::npos);
  EXPECT_NE(text.find("process_resident_memory_bytes "), std::string::npos);
}

TEST(Metrics, EveryMetricHasAHelpText) {
  for (const auto& metric : Metrics().Describe()) {
    EXPECT_FALSE(metric.help.empty()) << metric.name;
    EXPECT_EQ(metric.type == "counter",
              metric.name.ends_with("_total") && metric.name != "process_cpu_seconds_total")
        << metric.name;
  }
}

}  // namespace
}  // namespace ringmaster::serve
