// SPDX-License-Identifier: Apache-2.0

// The server with real sockets: its responses, and hostile clients.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "operator/serve/access_reviewer.h"
#include "operator/serve/health.h"
#include "operator/serve/http_server.h"
#include "operator/serve/metrics.h"

namespace ringmaster::serve {
namespace {

constexpr int kLimitMs = 20'000;  // for events that are immediate unless there is a bug

Fd Connect(uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

void Send(const Fd& fd, const std::string& text) {
  ASSERT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Reads until the connection ends or the text contains `enough`.
std::string Receive(const Fd& fd, const std::string& enough = "") {
  std::string text;
  char buffer[4096];
  pollfd wait{fd.get(), POLLIN, 0};
  while (poll(&wait, 1, kLimitMs) == 1) {
    const ssize_t n = recv(fd.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (!enough.empty() && text.find(enough) != std::string::npos) return text;
  }
  return text + "<nothing more came, and no end>";
}

std::string Get(uint16_t port, const std::string& target, const std::string& more = "") {
  const Fd fd = Connect(port);
  Send(fd, "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + more + "\r\n");
  return Receive(fd);
}

std::unique_ptr<HttpServer> Start(HttpHandler handler, HttpServerOptions options = {}) {
  auto server = HttpServer::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok());
  return std::move(server).value();
}

TEST(HttpServer, PassesPathQueryAndToken) {
  const auto server = Start([](const HttpRequest& query, const HttpResponder& reply) {
    reply({200, "text/plain", query.path + "|" + query.query + "|" + query.bearer});
  });
  const std::string answer = Get(server->port(), "/a/b?c=d", "Authorization: Bearer t0k\r\n");
  EXPECT_NE(answer.find("200 OK"), std::string::npos);
  EXPECT_NE(answer.find("/a/b|c=d|t0k"), std::string::npos);
}

TEST(HttpServer, KeepsTheConnection) {
  const auto server = Start([](const HttpRequest& query, const HttpResponder& reply) {
    reply({200, "t/p", query.path});
  });
  const Fd fd = Connect(server->port());
  for (int i = 0; i < 3; ++i) {
    const std::string path = "/again" + std::to_string(i);
    Send(fd, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_NE(Receive(fd, path).find(path), std::string::npos);
  }
}

TEST(HttpServer, ResponsesMayComeLaterFromAnotherThread) {
  std::thread later;
  const auto server = Start([&](const HttpRequest&, HttpResponder reply) {
    later = std::thread([reply] { reply({200, "text/plain", "late"}); });
  });
  EXPECT_NE(Get(server->port(), "/").find("late"), std::string::npos);
  later.join();
}

TEST(HttpServer, ResponseAfterTheEndIsDropped) {
  HttpResponder kept;
  std::atomic<bool> asked{false};
  auto server = Start([&](const HttpRequest&, HttpResponder reply) {
    kept = std::move(reply);
    asked = true;
    asked.notify_all();
  });
  const Fd fd = Connect(server->port());
  Send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  asked.wait(false);
  server.reset();
  kept({200, "text/plain", "dropped"});
  EXPECT_EQ(Receive(fd), "");
}

TEST(HttpServer, OnlyGetAndHead) {
  const auto server = Start([](const HttpRequest&, const HttpResponder& reply) {
    reply({200, "t/p", "secret"});
  });
  const Fd fd = Connect(server->port());
  Send(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  const std::string answer = Receive(fd);
  EXPECT_NE(answer.find("405"), std::string::npos);
  EXPECT_EQ(answer.find("secret"), std::string::npos);
}

TEST(HttpServer, RejectsTooLargeHeadsAndBodies) {
  const auto server = Start([](const HttpRequest&, const HttpResponder& reply) {
    reply({200, "t/p", "ok"});
  });
  const Fd head = Connect(server->port());
  const std::string endless = "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x');
  send(head.get(), endless.data(), endless.size(), MSG_NOSIGNAL);
  EXPECT_EQ(Receive(head).find("200"), std::string::npos);
  const Fd body = Connect(server->port());
  Send(body, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_EQ(Receive(body).find("200"), std::string::npos);
}

TEST(HttpServer, SilentConnectionsAreClosed) {
  HttpServerOptions options;
  options.idle_limit = milliseconds(100);
  const auto server = Start(
      [](const HttpRequest&, const HttpResponder& reply) {
        reply({200, "t/p", "ok"});
      },
      options);
  EXPECT_EQ(Receive(Connect(server->port())), "");
}

TEST(HttpServer, SilentConnectionsDoNotBlockOthers) {
  HttpServerOptions options;
  options.max_connections = 4;
  const auto server = Start(
      [](const HttpRequest&, const HttpResponder& reply) {
        reply({200, "t/p", "ok"});
      },
      options);
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect(server->port()));
  EXPECT_NE(Get(server->port(), "/").find("200"), std::string::npos);
  EXPECT_EQ(Receive(silent[0]), "");
}

TEST(HttpServer, ProbesThatOnlyConnectAreCleanedUp) {
  const auto server = Start([](const HttpRequest&, const HttpResponder& reply) {
    reply({200, "t/p", "ok"});
  });
  for (int i = 0; i < 300; ++i) Connect(server->port());
  EXPECT_NE(Get(server->port(), "/").find("200"), std::string::npos);  // there were more than max_connections
}

TEST(HttpServer, PortInUseIsAnError) {
  const auto server = Start([](const HttpRequest&, const HttpResponder& reply) { reply({}); });
  HttpServerOptions options;
  options.port = server->port();
  const auto second = HttpServer::Start(options, [](const HttpRequest&, const HttpResponder&) {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST(HttpServer, InvalidCertificateIsAnError) {
  HttpServerOptions options;
  options.tls_cert_pem = "nonsense";
  options.tls_key_pem = "nonsense";
  const auto server = HttpServer::Start(options, [](const HttpRequest&, const HttpResponder&) {});
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, Code::kInvalid);
}

// Holds each request until the test answers it.
class HeldRequests final : public kube::HttpClient {
 public:
  void Send(kube::HttpRequest request, std::function<void(Result<kube::HttpResponse>)> done) override {
    targets.push_back(request.target);
    waiting.push_back(std::move(done));
  }
  std::unique_ptr<kube::HttpStream> Stream(kube::HttpRequest, kube::StreamHandlers) override {
    return nullptr;
  }
  void Answer(const std::string& body) {
    const auto done = std::move(waiting.back());
    waiting.pop_back();
    kube::HttpResponse response;
    response.status = 201;
    response.body = body;
    done(std::move(response));
  }

  std::vector<std::string> targets;
  std::vector<std::function<void(Result<kube::HttpResponse>)>> waiting;
};

TEST(AccessReviewer, AnAnswerMayComeAfterItsEnd) {
  HeldRequests http;
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
  metrics.SetGauges([&] { return now; });
  metrics.Text();
  now.jobs_by_phase = {{"Pending", 0}, {"Running", 2}};
  now.queue_adds = 11;
  now.workers_by_gpu = {{{"NVIDIA H200", "580.95"}, 7}};
  now.workers_with_device_fault = 1;
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
           "ringmaster_cached_objects{kind=\"pods\"} 9",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
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
