// SPDX-License-Identifier: Apache-2.0

// ringmaster-operator: watches the cluster from its start, leads once it wins the Lease, and exits when it
// loses it.
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "base/file.h"
#include "base/host_name.h"
#include "base/log.h"
#include "operator/control/convert.h"
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
constexpr Duration kShutdownLimit = seconds(30);  // after this the process exits, whatever is still running
constexpr Duration kLeaseSilence = seconds(60);   // not ready without an answer about the Lease for this long
constexpr std::chrono::hours kMetricsCertificateLife{24 * 365};

std::string RandomSuffix() {
  const Result<std::string> uuid = ReadFile("/proc/sys/kernel/random/uuid", 256);
  CHECK(uuid.ok(), "{}", uuid.error().message);
  return uuid.value().substr(0, 8);
}

// Wakes the main thread's poll from any thread.
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

// Counts what a status write adds to the counts of the job. Only the leader writes, so each is counted once.
void CountWrite(serve::Metrics& metrics, const kube::JobRecord& job, const core::JobCounts& before,
                const core::Status& status) {
  const core::JobCounts after = core::JobCountsOf(job.spec->job, status);
  const int32_t charged = after.charged - before.charged;
  for (int32_t i = before.restarts; i < after.restarts; ++i) metrics.Restarted(i - before.restarts < charged);
  if (after.ended && !before.ended)
    metrics.JobEnded(status.ledger.outcome == core::Outcome::kSucceeded,
                     core::ReasonName(status.ledger.outcome_reason));
  if (after.stepped && !before.stepped) metrics.FirstStep(Now() - job.created);
}

Result<kube::ClientConfig> LoadClientConfig(const Flags& flags) {
  kube::ConfigOptions options;
  options.kubeconfig_paths = flags.kubeconfig;
  options.context = flags.context;
  RM_ASSIGN(kube::ClientConfig config, kube::LoadConfig(options));
  config.user_agent = std::string("ringmaster-operator/") + RINGMASTER_VERSION;
  if (!config.ca_pem.empty()) {
    // OpenSSL loads the system's authorities for each connection (20 ms of CPU), though only the cluster's
    // are trusted. Credential plugins still get the original values.
    ::setenv("SSL_CERT_FILE", "/dev/null", 1);
    ::setenv("SSL_CERT_DIR", "/nonexistent", 1);
  }
  return config;
}

// One replica: its connection to the API server, its view of the cluster, its Lease and, while it leads, the
// Leader. Members are declared in the order in which they depend on each other.
class Operator {
 public:
  Operator(const Flags& flags, std::string identity, std::unique_ptr<kube::HttpClient> transport,
           kube::WallClock clock)
      : flags_(flags),
        identity_(std::move(identity)),
        clock_(std::move(clock)),
        http_(std::move(transport), metrics_),
        api_(http_, kube::kFieldManager, RetryCounter()),
        urgent_http_(http_, kube::RequestPriority::kUrgent, flags.renew_deadline / 2),
        urgent_api_(urgent_http_, kube::kFieldManager, RetryCounter()),
        background_http_(http_, kube::RequestPriority::kBackground),
        background_api_(background_http_, kube::kFieldManager, RetryCounter()),
        lease_(urgent_api_, LeaseOptions()),
        recorder_(background_api_, RecorderOptions()),
        backend_(api_, BackendOptions()),
        reviewer_(api_) {
    metrics_.Leading(flags_.lease_name, false);
    metrics_.SetGauges([this] { return ReadGauges(); });
  }

  // Runs until a signal arrives (Ok) or this process cannot lead any more (an error).
  Status Run(const Fd& signals) {
    RM_TRY(StartHealthServer());
    RM_TRY(StartMetricsServer());
    backend_.Start();
    lease_.Start();
    const Status outcome = WatchAndLead(signals);
    Shutdown();
    return outcome;
  }

 private:
  std::function<void(const std::string&, int)> RetryCounter() {
    return [this](const std::string& method, int status) { metrics_.RequestRetried(method, status); };
  }

  election::LeaderElector::Options LeaseOptions() {
    election::LeaderElector::Options options;
    options.namespace_ = flags_.namespace_;
    options.name = flags_.lease_name;
    options.lease.identity = identity_;
    options.lease.duration = flags_.lease_duration;
    options.lease.renew_deadline = flags_.renew_deadline;
    options.lease.retry_period = flags_.retry_period;
    options.lease.seed = std::hash<std::string>()(identity_);
    options.on_elected = [this](int64_t term) {
      metrics_.Leading(flags_.lease_name, true);
      term_ = term;
      notifier_.Notify();
    };
    options.on_lost = [this] {
      metrics_.Leading(flags_.lease_name, false);
      lost_ = true;
      notifier_.Notify();
    };
    return options;
  }

  kube::EventRecorder::Options RecorderOptions() {
    kube::EventRecorder::Options options;
    options.instance = identity_;
    options.may_write = [this] { return lease_.MayWrite(); };
    options.correlator.salt = RandomSuffix();
    return options;
  }

  kube::KubeBackend::Options BackendOptions() {
    kube::KubeBackend::Options options;
    options.clock = clock_;
    options.namespaces = flags_.watch_namespaces;
    options.may_write = [this] { return lease_.MayWrite(); };
    options.context = [this](const control::Key&) {
      wiring::Context context;
      context.worker_image = flags_.worker_image;
      context.coordinator_address = CoordinatorAddress();
      return context;
    };
    options.on_gang = [this](const kube::JobRecord& job, const core::SetGang& order) {
      handle_.WithCoordinators(
          [&](GangCoordinators& coordinators) { coordinators.Order(job.key, job.uid, job.status, order); });
    };
    options.on_event = [this](const control::Key& key, const std::string& uid, const core::Event& event) {
      log::Info("{} reason={} {}", backend_.JobTag(key), event.reason, event.message);
      recorder_.Record({key.namespace_, key.name, uid}, event.warning, event.reason, event.message);
    };
    options.gang = control::GangModeOf(flags_.gang);
    options.schedulers = {flags_.volcano_scheduler, flags_.coscheduling_scheduler};
    options.volcano_namespace = flags_.volcano_namespace;
    options.namespace_weights = flags_.namespace_weights;
    options.kueue_required = flags_.kueue_required;
    options.kueue_namespaces = flags_.kueue_namespaces;
    options.autoscaler = flags_.autoscaler;
    options.host_ports = {flags_.host_ports.first, flags_.host_ports.last - flags_.host_ports.first + 1};
    options.on_counts = [this](const kube::JobRecord& job, const core::JobCounts& before,
                               const core::Status& status) { CountWrite(metrics_, job, before, status); };
    options.on_watch_failure = [](const kube::Resource& resource, const Error& error) {
      log::Warn("watch={} error={}", resource.plural, error.message);
    };
    return options;
  }

  // The host:port that agents connect to.
  std::string CoordinatorAddress() const {
    if (!flags_.rendezvous_advertise.empty()) return flags_.rendezvous_advertise;
    return fmt::format("{}.{}.svc:{}", flags_.rendezvous_service, flags_.namespace_,
                       ParseAddress(flags_.rendezvous_address)->port);
  }

  serve::Metrics::Gauges ReadGauges() const {
    serve::Metrics::Gauges now;
    kube::KubeBackend::Census census = backend_.TakeCensus();
    // Every phase gets a value, so that dashboards find those that no job is in.
    for (size_t i = 0; i < census.jobs.size(); ++i)
      now.jobs_by_phase.emplace_back(core::PhaseName(static_cast<core::Phase>(i)), census.jobs[i]);
    now.pods = census.pods;
    now.gangs_waiting = census.gangs_waiting;
    now.namespaces_denied = census.namespaces_denied;
    now.queue_lengths = std::move(census.queue_lengths);
    now.workers_by_gpu = std::move(census.workers_by_gpu);
    now.workers_with_device_fault = census.workers_with_device_fault;
    now.stragglers = census.stragglers;
    if (flags_.job_metrics) {
      now.samples_per_second = std::move(census.samples_per_second);
      now.goodput = std::move(census.goodput);
    }
    now.cached_objects = backend_.ObjectCounts();
    now.events_dropped = recorder_.dropped();
    handle_.FillGauges(now);
    return now;
  }

  Status StartHealthServer() {
    if (flags_.health_address.empty()) return Ok();
    const auto address = ParseAddress(flags_.health_address);
    http::ServerOptions options;
    options.host = address->host;
    options.port = address->port;
    std::vector<serve::HealthCheck> ready;
    ready.push_back(
        {"caches", [this] { return backend_.Synced() ? "" : "the first lists are not complete"; }});
    ready.push_back({"watches", [this] {
                       const std::vector<std::string> problems = backend_.Problems();
                       return problems.empty() ? std::string() : problems[0];
                     }});
    ready.push_back({"lease", [this] {
                       return lease_.AnsweredWithin(kLeaseSilence) ? "" : "the API server does not respond";
                     }});
    ready.push_back({"rendezvous", [this] { return term_ == 0 ? std::string() : handle_.Problem(); }});
    RM_ASSIGN(health_server_, http::Server::Start(options, serve::HealthHandler({}, std::move(ready))));
    log::Info("health port={}", health_server_->port());
    return Ok();
  }

  Status StartMetricsServer() {
    if (flags_.metrics_address.empty()) return Ok();
    const auto address = ParseAddress(flags_.metrics_address);
    http::ServerOptions options;
    options.host = address->host;
    options.port = address->port;
    if (!flags_.metrics_open) {
      // Scrapers skip verification of a self-signed certificate. The reviewer protects the metrics: it checks
      // who reads them.
      RM_ASSIGN(
          const identity::KeyPair own,
          identity::MakeAuthority("ringmaster-operator metrics", kube::WallNow(), kMetricsCertificateLife));
      options.tls_cert_pem = own.cert_pem;
      options.tls_key_pem = own.key_pem;
    }
    http::Handler handler = serve::MetricsHandler(metrics_, flags_.metrics_open ? nullptr : &reviewer_);
    RM_ASSIGN(metrics_server_, http::Server::Start(options, std::move(handler)));
    log::Info("metrics port={}", metrics_server_->port());
    return Ok();
  }

  // The main loop: waits for a signal, the election and the Leader's next step.
  Status WatchAndLead(const Fd& signals) {
    for (;;) {
      const bool waiting = leader_ && !leader_->running();
      pollfd polled[] = {{signals.get(), POLLIN, 0}, {notifier_.fd(), POLLIN, 0}};
      ::poll(polled, 2, waiting ? 100 : -1);
      if (polled[0].revents != 0) {
        log::Info("ending");
        return Ok();
      }
      notifier_.Clear();
      if (lost_)
        return Error{Code::kUnavailable,
                     "lost the Lease: another replica leads, or the API server does not respond"};
      if (term_ != 0 && !leader_)
        leader_ = std::make_unique<Leader>(
            Leader::Dependencies{api_, backend_, metrics_, handle_, [this] { return lease_.MayWrite(); },
                                 [this] { notifier_.Notify(); }},
            flags_, term_.load());
      if (leader_) RM_TRY(leader_->Advance());
    }
  }

  void Shutdown() {
    // The process exits even when one of the steps below hangs.
    std::thread([] {
      std::this_thread::sleep_for(kShutdownLimit);
      std::_Exit(kExitLostLease);
    }).detach();
    metrics_server_.reset();
    health_server_.reset();
    metrics_.SetGauges(nullptr);
    leader_.reset();  // no decision after this, so another replica may take the Lease
    lease_.Stop();
    backend_.Stop();
  }

  const Flags& flags_;
  const std::string identity_;
  const kube::WallClock clock_;
  serve::Metrics metrics_;
  MeteredHttp http_;
  kube::ApiClient api_;
  kube::PriorityHttp urgent_http_;  // for the Lease: its renewals must not wait behind other requests
  kube::ApiClient urgent_api_;
  kube::PriorityHttp background_http_;  // for events
  kube::ApiClient background_api_;
  Notifier notifier_;
  LeaderHandle handle_;
  std::atomic<int64_t> term_{0};  // 0: not elected
  std::atomic<bool> lost_{false};
  election::LeaderElector lease_;
  kube::EventRecorder recorder_;
  kube::KubeBackend backend_;
  serve::AccessReviewer reviewer_;
  std::unique_ptr<http::Server> health_server_;
  std::unique_ptr<http::Server> metrics_server_;
  std::unique_ptr<Leader> leader_;
};

Status Run(const Flags& flags, const Fd& signals) {
  const std::string identity = (flags.identity.empty() ? HostName() : flags.identity) + "_" + RandomSuffix();
  RM_ASSIGN(const kube::ClientConfig config, LoadClientConfig(flags));
  log::Info("server={} identity={} version={}", config.server, identity, RINGMASTER_VERSION);
  const kube::WallClock clock(Now(), kube::WallNow());
  kube::TransportOptions options;
  options.on_date = [clock](kube::WallTime server) {
    if (clock.Correct(server, Now()))
      log::Warn("clock_of_server={} effect=\"times are read and written by the API server's clock\"",
                kube::WallSecondsText(server));
  };
  RM_ASSIGN(auto transport, kube::MakeHttpClient(config, options));
  Operator replica(flags, identity, std::move(transport), clock);
  return replica.Run(signals);
}

int Main(int argc, char** argv) {
  int exit_code = 0;
  const auto flags = ParseFlags(argc, argv, exit_code);
  if (!flags) return exit_code;
  if (flags->log_json)
    log::InitJson("ringmaster-operator");
  else
    log::Init("ringmaster-operator");
  // Many threads allocate objects that live long. With an arena per thread, each arena would fragment.
  ::mallopt(M_ARENA_MAX, 2);
  // Blocked before the first thread starts, so that all threads inherit the mask and signalfd gets the
  // signals.
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
