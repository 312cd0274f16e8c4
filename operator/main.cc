// SPDX-License-Identifier: Apache-2.0

// ringmaster-operator: watches from the beginning, leads when it wins the Lease, ends when it loses it.
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "operator/election/leader_elector.h"
#include "operator/flags.h"
#include "operator/identity/x509.h"
#include "operator/kube/config.h"
#include "operator/kube/cpprest_http.h"
#include "operator/kube/event_recorder.h"
#include "operator/kube/priority_http.h"
#include "operator/leader.h"
#include "operator/metered_http.h"
#include "operator/serve/health.h"
#include "operator/serve/metrics_handler.h"

namespace ringmaster::operator_main {
namespace {

constexpr int kExitLostLease = 1;
constexpr Duration kEndLimit = seconds(30);      // then the process ends however it stands
constexpr Duration kLeaseSilence = seconds(60);  // readiness: the API server answered us at least so lately
constexpr std::chrono::hours kMetricsCertificateLife{24 * 365};

std::string HostName() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string Uuid() {
  const Result<std::string> uuid = ReadFile("/proc/sys/kernel/random/uuid", 256);
  CHECK(uuid.ok(), "{}", uuid.error().message);
  return uuid.value().substr(0, 8);
}

// Lets any thread wake the main one.
class Notifier {
 public:
  Notifier() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(fd_.valid(), "eventfd"); }
  void Notify() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(fd_.get(), &one, sizeof one);
  }
  int fd() const { return fd_.get(); }
  void Clear() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  Fd fd_;
};

serve::Metrics::Gauges ReadGauges(const kube::KubeBackend& backend, const kube::EventRecorder& recorder,
                                  const LeaderHandle& leader_handle) {
  serve::Metrics::Gauges now;
  // Also those that no job is in: who draws or compares them should find them.
  std::array<int64_t, static_cast<size_t>(core::kLastPhase) + 1> phases{};
  for (const control::Key& key : backend.Keys()) {
    const auto snapshot = backend.Observe(key);
    if (!snapshot) continue;
    const core::Display& display = snapshot->observed.status.display;
    ++phases[static_cast<size_t>(display.phase)];
    now.pods += static_cast<int64_t>(snapshot->observed.pods.size());
    if (snapshot->observed.report) {
      for (const rendezvous::WorkerFacts& worker : snapshot->observed.report->facts) {
        ++now.workers_by_gpu[{worker.facts.device, worker.facts.driver}];
        now.workers_in_trouble += worker.facts.device_faults.empty() ? 0 : 1;
      }
    }
    const auto gated = [](const core::Pod& pod) { return pod.gated; };
    now.gangs_waiting +=
        std::any_of(snapshot->observed.pods.begin(), snapshot->observed.pods.end(), gated) ? 1 : 0;
  }
  for (size_t i = 0; i < phases.size(); ++i)
    now.jobs_by_phase.emplace_back(core::PhaseName(static_cast<core::Phase>(i)), phases[i]);
  now.cached_objects = backend.ObjectCounts();
  now.events_dropped = recorder.dropped();
  leader_handle.FillGauges(now);
  return now;
}

// What has become of a job, as its status tells: counted once, by the leader who sees it.
void CountChange(serve::Metrics& metrics, const kube::JobRecord& before, const kube::JobRecord& after) {
  const core::Ledger& was = before.status.ledger;
  const core::Ledger& is = after.status.ledger;
  const int32_t charged = is.restarts.charged - was.restarts.charged;
  for (int32_t i = was.restarts.total; i < is.restarts.total; ++i)
    metrics.Restarted(i - was.restarts.total < charged);
  if (!before.status.ended() && after.status.ended())
    metrics.JobEnded(is.outcome == core::Outcome::kSucceeded, core::ReasonName(is.outcome_reason));
  const auto stepped = [](const kube::JobRecord& job) {
    return job.spec->job.native && (job.status.ledger.time_accounting == core::TimeAccounting::kProductive ||
                                    job.status.ledger.goodput.productive > Duration{0});
  };
  if (stepped(after) && !stepped(before)) metrics.FirstStep(Now() - after.created);
}

std::string FirstOf(const std::vector<std::string>& problems) {
  return problems.empty() ? std::string() : problems[0];
}

Result<std::unique_ptr<serve::HttpServer>> StartMetrics(const Flags& flags, const serve::Metrics& metrics,
                                                        serve::AccessReviewer& gate) {
  const auto address = ParseAddress(flags.metrics_address);
  serve::HttpServerOptions options;
  options.host = address->host;
  options.port = address->port;
  if (!flags.metrics_open) {
    // Scrapers skip verification, as with every operator that has no certificate of its own: what protects
    // the numbers is the question who asks.
    RM_ASSIGN(const identity::KeyPair own, identity::MakeAuthority("ringmaster-operator metrics",
                                                                   kube::WallNow(), kMetricsCertificateLife));
    options.tls_cert_pem = own.cert_pem;
    options.tls_key_pem = own.key_pem;
  }
  return serve::HttpServer::Start(options,
                                  serve::MetricsHandler(metrics, flags.metrics_open ? nullptr : &gate));
}

Status Run(const Flags& flags, const Fd& signals) {
  const std::string identity = (flags.identity.empty() ? HostName() : flags.identity) + "_" + Uuid();
  kube::ConfigOptions config_options;
  config_options.kubeconfig_paths = flags.kubeconfig;
  config_options.context = flags.context;
  RM_ASSIGN(kube::ClientConfig config, kube::LoadConfig(config_options));
  config.user_agent = std::string("ringmaster-operator/") + RINGMASTER_VERSION;
  if (!config.ca_pem.empty()) {
    // OpenSSL reads the system's authorities for each connection, though only the cluster's are trusted: 20
    // ms of CPU. Whatever these were set to is for others; credential plugins still get that.
    ::setenv("SSL_CERT_FILE", "/dev/null", 1);
    ::setenv("SSL_CERT_DIR", "/nonexistent", 1);
  }
  log::Info("server={} identity={} version={}", config.server, identity, RINGMASTER_VERSION);

  serve::Metrics metrics;
  RM_ASSIGN(auto transport, kube::MakeHttpClient(config));
  MeteredHttp http(std::move(transport), metrics);
  const auto on_retry = [&metrics](const std::string& method, int status) {
    metrics.RequestRetried(method, status);
  };
  kube::ApiClient api(http, kube::kFieldManager, on_retry);
  kube::PriorityHttp urgent(http, kube::RequestPriority::kUrgent, flags.renew_deadline / 2);
  kube::ApiClient urgent_api(urgent, kube::kFieldManager, on_retry);
  kube::PriorityHttp patient(http, kube::RequestPriority::kBackground);
  kube::ApiClient patient_api(patient, kube::kFieldManager, on_retry);
  Notifier notifier;
  LeaderHandle leader_handle;

  // Filled in below, before anything could ask.
  std::unique_ptr<election::LeaderElector> lease;
  const auto may_write = [&lease] { return lease && lease->MayWrite(); };

  kube::EventRecorder::Options recorder_options;
  recorder_options.instance = identity;
  recorder_options.may_write = may_write;
  recorder_options.correlator.salt = Uuid();
  kube::EventRecorder recorder(patient_api, std::move(recorder_options));

  kube::KubeBackend* observed = nullptr;
  const std::string advertise = flags.rendezvous_advertise.empty()
                                    ? fmt::format("{}.{}.svc:{}", flags.rendezvous_service, flags.namespace_,
                                                  ParseAddress(flags.rendezvous_address)->port)
                                    : flags.rendezvous_advertise;
  kube::KubeBackend::Options options;
  options.clock = kube::WallClock(Now(), kube::WallNow());
  options.namespaces = flags.watch_namespaces;
  options.may_write = may_write;
  options.context = [&](const control::Key&) {
    wiring::Context context;
    context.worker_image = flags.worker_image;
    context.coordinator_address = advertise;
    return context;
  };
  options.on_gang = [&](const control::Key& key, const core::SetGang& order) {
    const auto snapshot = observed->Observe(key);
    if (!snapshot) return;
    leader_handle.WithCoordinators([&](GangCoordinators& coordinators) {
      coordinators.Order(key, snapshot->observed.job.uid, snapshot->observed.status, order);
    });
  };
  options.on_event = [&](const control::Key& key, const std::string& uid, const core::Event& event) {
    log::Info("job={} reason={} {}", key.ToString(), event.reason, event.message);
    recorder.Note({key.namespace_, key.name, uid}, event.warning, event.reason, event.message);
  };
  options.host_ports = {flags.host_ports.first, flags.host_ports.last - flags.host_ports.first + 1};
  options.on_job = [&](const kube::JobRecord& before, const kube::JobRecord& after) {
    if (may_write()) CountChange(metrics, before, after);
  };
  options.on_watch_failure = [](const kube::Resource& resource, const Error& error) {
    log::Warn("watch={} error={}", resource.plural, error.message);
  };
  kube::KubeBackend backend(api, std::move(options));
  observed = &backend;
  metrics.SetGauges([&] { return ReadGauges(backend, recorder, leader_handle); });

  std::atomic<int64_t> term{0};
  std::atomic<bool> lost{false};
  election::LeaderElector::Options lease_options;
  lease_options.namespace_ = flags.namespace_;
  lease_options.name = flags.lease_name;
  lease_options.lease.identity = identity;
  lease_options.lease.duration = flags.lease_duration;
  lease_options.lease.renew_deadline = flags.renew_deadline;
  lease_options.lease.retry_period = flags.retry_period;
  lease_options.lease.seed = std::hash<std::string>()(identity);
  lease_options.on_elected = [&](int64_t won) {
    metrics.Leading(flags.lease_name, true);
    term = won;
    notifier.Notify();
  };
  lease_options.on_lost = [&] {
    metrics.Leading(flags.lease_name, false);
    lost = true;
    notifier.Notify();
  };
  metrics.Leading(flags.lease_name, false);
  lease = std::make_unique<election::LeaderElector>(urgent_api, std::move(lease_options));

  serve::AccessReviewer gate(api);
  std::unique_ptr<serve::HttpServer> health;
  std::unique_ptr<serve::HttpServer> numbers;
  if (!flags.health_address.empty()) {
    const auto address = ParseAddress(flags.health_address);
    serve::HttpServerOptions server;
    server.host = address->host;
    server.port = address->port;
    RM_ASSIGN(
        health,
        serve::HttpServer::Start(
            server,
            serve::HealthHandler(
                {}, {{"caches", [&] { return backend.Synced() ? "" : "not everything was listed yet"; }},
                     {"watches", [&] { return FirstOf(backend.Problems()); }},
                     {"lease", [&] {
                        return lease->AnsweredWithin(kLeaseSilence) ? "" : "the API server does not answer";
                      }}})));
    log::Info("health port={}", health->port());
  }
  if (!flags.metrics_address.empty()) {
    RM_ASSIGN(numbers, StartMetrics(flags, metrics, gate));
    log::Info("metrics port={}", numbers->port());
  }

  backend.Start();
  lease->Start();

  std::unique_ptr<Leader> leader;
  Status outcome;
  for (;;) {
    const bool waiting = leader && !leader->running();
    pollfd polled[] = {{signals.get(), POLLIN, 0}, {notifier.fd(), POLLIN, 0}};
    ::poll(polled, 2, waiting ? 100 : -1);
    if (polled[0].revents != 0) {
      log::Info("ending");
      break;
    }
    notifier.Clear();
    if (lost) {
      outcome =
          Error{Code::kUnavailable, "the Lease was lost: another replica leads, or the API server is away"};
      break;
    }
    if (term != 0 && !leader)
      leader = std::make_unique<Leader>(
          Leader::Dependencies{api, backend, metrics, leader_handle, [&notifier] { notifier.Notify(); }},
          flags, term.load());
    if (leader) {
      outcome = leader->Advance();
      if (!outcome.ok()) break;
    }
  }

  // However this goes on, it ends.
  std::thread([] {
    std::this_thread::sleep_for(kEndLimit);
    std::_Exit(kExitLostLease);
  }).detach();
  numbers.reset();
  health.reset();
  metrics.SetGauges(nullptr);
  leader.reset();  // no decision after this, so the Lease may be handed over
  lease->Stop();
  backend.Stop();
  return outcome;
}

int Main(int argc, char** argv) {
  int exit_code = 0;
  const auto flags = ParseFlags(argc, argv, exit_code);
  if (!flags) return exit_code;
  if (flags->log_json)
    log::InitJson("ringmaster-operator");
  else
    log::Init("ringmaster-operator");
  // Objects come on many threads and stay for long: with an arena for each, every one of them keeps its own
  // holes.
  ::mallopt(M_ARENA_MAX, 2);
  // Before any thread is there: all of them inherit the mask, and the signals wait for us.
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&mask, signal);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const Fd signals(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  CHECK(signals.valid(), "signalfd: error {}", errno);
  const Status status = Run(*flags, signals);
  if (status.ok()) return 0;
  log::Error("end=true error={}", status.error().message);
  return kExitLostLease;
}

}  // namespace
}  // namespace ringmaster::operator_main

int main(int argc, char** argv) { return ringmaster::operator_main::Main(argc, argv); }
