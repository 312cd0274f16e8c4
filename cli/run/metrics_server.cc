// SPDX-License-Identifier: Apache-2.0

#include "cli/run/metrics_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "cli/ui/page_guard.h"
#include "operator/core/status.h"
#include "operator/serve/metrics_handler.h"

namespace ringmaster::cli {
namespace {

struct MetricsAddress {
  std::string host;
  uint16_t port = 0;
};

Result<MetricsAddress> ParseMetricsAddress(const std::string& text) {
  const Error error{Code::kInvalid, "--metrics-address " + text +
                                        ": expected HOST:PORT with a loopback address, for example "
                                        "127.0.0.1:9400 or [::1]:9400; port 0 is any free one"};
  MetricsAddress address;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return error;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (failure != std::errc() || stop != end) return error;
  address.host = text.substr(0, colon);
  if (address.host == "[::1]") address.host = "::1";
  if (address.host == "localhost") address.host = "127.0.0.1";
  if (address.host != "::1" && !address.host.starts_with("127.")) return error;
  return address;
}

}  // namespace

Status CheckMetricsAddress(const std::string& address) {
  auto parsed = ParseMetricsAddress(address);
  return parsed.ok() ? Status(Ok()) : Status(parsed.error());
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address) {
  RM_ASSIGN(MetricsAddress parsed, ParseMetricsAddress(address));
  std::unique_ptr<MetricsServer> server(new MetricsServer(parsed.host));
  server->metrics_.SetGauges([metrics = server.get()] {
    MutexLock lock(metrics->mutex_);
    return metrics->gauges_;
  });
  http::ServerOptions options;
  options.host = parsed.host;
  options.port = parsed.port;
  // Without this check a web site could read the metrics through a browser of this machine (DNS rebinding).
  auto started = http::Server::Start(options, [handler = serve::MetricsHandler(server->metrics_, nullptr)](
                                                  const http::Request& request, http::Responder reply) {
    Admission admission = Admit({}, request);
    if (admission.kind == Admission::Kind::kServe) return handler(request, std::move(reply));
    reply(std::move(admission.response));
  });
  if (!started.ok()) return started.error().In("--metrics-address");
  server->server_ = std::move(*started);
  return server;
}

std::string MetricsServer::Url() const {
  const bool v6 = host_.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}/metrics", v6 ? "[" : "", host_, v6 ? "]" : "", server_->port());
}

void MetricsServer::OnProgress(const rendezvous::Progress& progress) {
  if (progress.records.empty()) return;
  int64_t samples = 0;
  for (const rendezvous::StepRecord& record : progress.records) samples += record.samples;
  metrics_.Stepped(static_cast<int64_t>(progress.records.size()), samples);
  metrics_.Loss(progress.records.back().loss);
}

void MetricsServer::OnBusyTimes(const rendezvous::GangBusyTimes& times) {
  if (const auto ratio = rendezvous::ImbalanceOf(times)) metrics_.StepImbalance(*ratio);
  std::map<std::string, double> seconds;
  for (size_t rank = 0; rank < times.ranks.size(); ++rank)
    if (times.ranks[rank].steps > 0) {
      double& slowest = seconds[(*times.pods)[rank]];  // of the slots of a pod
      slowest = std::max(slowest, times.ranks[rank].seconds);
    }
  metrics_.WorkerBusy(seconds);
}

void MetricsServer::OnEvent(const rendezvous::EventLine& line) {
  if (line.kind == rendezvous::EventKind::kGenerationFormed) metrics_.GenerationFormed(line.recovery);
  if (line.kind == rendezvous::EventKind::kWorkerFailed && !line.pod.empty()) metrics_.WorkerFailed();
}

void MetricsServer::Update(const core::Observed& observed, int64_t connected) {
  const core::JobCounts now = core::JobCountsOf(observed.job, observed.status);
  const int32_t charged = now.charged - counted_.charged;
  for (int32_t i = counted_.restarts; i < now.restarts; ++i)
    metrics_.Restarted(i - counted_.restarts < charged);
  if (now.ended && !counted_.ended)
    metrics_.JobEnded(observed.status.ledger.outcome == core::Outcome::kSucceeded,
                      core::ReasonName(observed.status.ledger.outcome_reason));
  if (now.stepped && !counted_.stepped) metrics_.FirstStep(Now() - started_);
  counted_.Raise(now);
  serve::Metrics::Gauges gauges;
  for (size_t i = 0; i <= static_cast<size_t>(core::kLastPhase); ++i) {
    const auto phase = static_cast<core::Phase>(i);
    gauges.jobs_by_phase.emplace_back(core::PhaseName(phase), phase == observed.status.display.phase ? 1 : 0);
  }
  gauges.pods = static_cast<int64_t>(observed.pods.size());
  gauges.workers_connected = connected;
  gauges.stragglers = observed.report ? static_cast<int64_t>(observed.report->stragglers.size()) : 0;
  MutexLock lock(mutex_);
  gauges_ = std::move(gauges);
}

}  // namespace ringmaster::cli
