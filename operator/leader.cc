// SPDX-License-Identifier: Apache-2.0

#include "operator/leader.h"

#include <utility>

#include "base/log.h"

namespace ringmaster::operator_main {
namespace {

constexpr const char* kCertificatesSecret = "ringmaster-rendezvous";

// The host names that agents may use for the rendezvous server.
std::vector<std::string> ServerNames(const Flags& flags) {
  const std::string service = flags.rendezvous_service + "." + flags.namespace_;
  std::vector<std::string> names = {service + ".svc", service, service + ".svc.cluster.local"};
  if (const auto address = ParseAddress(flags.rendezvous_advertise))
    names.insert(names.begin(), address->host);
  return names;
}

}  // namespace

void LeaderHandle::SetCoordinators(GangCoordinators* coordinators) {
  MutexLock lock(mutex_);
  coordinators_ = coordinators;
}
void LeaderHandle::WithCoordinators(const std::function<void(GangCoordinators&)>& use) const {
  MutexLock lock(mutex_);
  if (coordinators_ != nullptr) use(*coordinators_);
}

void LeaderHandle::SetGaugeSource(std::function<void(serve::Metrics::Gauges&)> fill) {
  MutexLock lock(mutex_);
  gauge_source_ = std::move(fill);
}
void LeaderHandle::FillGauges(serve::Metrics::Gauges& gauges) const {
  MutexLock lock(mutex_);
  if (gauge_source_) gauge_source_(gauges);
}

void LeaderHandle::SetProblemSource(std::function<std::string()> problem) {
  MutexLock lock(mutex_);
  problem_source_ = std::move(problem);
}
std::string LeaderHandle::Problem() const {
  MutexLock lock(mutex_);
  return problem_source_ ? problem_source_() : "the rendezvous server does not run";
}

Leader::Leader(Dependencies deps, const Flags& flags, int64_t term)
    : deps_(std::move(deps)),
      flags_(flags),
      term_(term),
      authenticator_(deps_.api, [this](const auto& job, const auto& pod, const auto& uid, int64_t attempt) {
        return CheckWorker(job, pod, uid, attempt);
      }) {
  identity::CertificateManager::Options options;
  options.namespace_ = flags_.namespace_;
  options.secret_name = kCertificatesSecret;
  options.names = ServerNames(flags_);
  options.authority_life = flags_.ca_life;
  options.on_change = [this](const identity::Certificates& certificates) {
    {
      MutexLock lock(mutex_);
      new_certificates_ = certificates;
    }
    deps_.wake();
  };
  certificates_ = std::make_unique<identity::CertificateManager>(deps_.api, std::move(options));
}

Leader::~Leader() {
  certificates_.reset();
  deps_.handle.SetGaugeSource(nullptr);
  deps_.handle.SetProblemSource(nullptr);
  endpoint_.reset();
  if (loop_) loop_->Stop();
  deps_.handle.SetCoordinators(nullptr);
  if (server_) server_->Shutdown();
}

Status Leader::Advance() {
  std::optional<identity::Certificates> certificates;
  {
    MutexLock lock(mutex_);
    certificates = std::exchange(new_certificates_, std::nullopt);
  }
  if (certificates) {
    // Workers know an authority before it signs (certificates.h), so these two may happen in any order.
    deps_.backend.SetAuthority(certificates->Bundle());
    if (server_) {
      RM_TRY(server_->SetCertificate(certificates->leaf.cert_pem, certificates->leaf.key_pem));
    } else {
      RM_TRY(StartServer(*certificates));
    }
  }
  if (server_ && !loop_ && deps_.backend.Synced()) StartController();
  return Ok();
}

Status Leader::StartServer(const identity::Certificates& certificates) {
  const auto address = ParseAddress(flags_.rendezvous_address);
  rendezvous::ServerOptions options;
  options.host = address->host;
  options.port = address->port;
  options.tls_cert_pem = certificates.leaf.cert_pem;
  options.tls_key_pem = certificates.leaf.key_pem;
  options.authenticate = [this](const rendezvous::Hello& hello, std::function<void(Status)> done) {
    authenticator_.Authenticate(hello, std::move(done));
  };
  rendezvous::ServerCallbacks callbacks;
  callbacks.on_report = [backend = &deps_.backend](const std::string& job, const std::string& uid,
                                                   const rendezvous::Report& report) {
    backend->SetReport(control::Key::Parse(job), uid, report);
  };
  callbacks.on_progress = [metrics = &deps_.metrics](const std::string&,
                                                     const rendezvous::Progress& progress) {
    int64_t samples = 0;
    for (const rendezvous::StepRecord& record : progress.records) samples += record.samples;
    metrics->Stepped(static_cast<int64_t>(progress.records.size()), samples);
  };
  callbacks.on_event = [backend = &deps_.backend, metrics = &deps_.metrics](
                           const std::string& job, const rendezvous::EventLine& line) {
    if (line.kind == rendezvous::EventKind::kGenerationFormed) metrics->GenerationFormed(line.recovery);
    if (line.kind == rendezvous::EventKind::kWorkerFailed && !line.pod.empty()) metrics->WorkerFailed();
    log::Info("{} {}", backend->JobTag(control::Key::Parse(job)), line.text);
    if (line.kind == rendezvous::EventKind::kDeviceFault || line.kind == rendezvous::EventKind::kStraggler ||
        line.kind == rendezvous::EventKind::kPeersUnreachable)
      backend->Record(control::Key::Parse(job), {true, rendezvous::ReasonOf(line.kind), line.text});
  };
  callbacks.on_busy_times = [metrics = &deps_.metrics](const std::string&,
                                                       const rendezvous::GangBusyTimes& times) {
    if (const auto ratio = rendezvous::ImbalanceOf(times)) metrics->StepImbalance(*ratio);
  };
  RM_ASSIGN(server_, rendezvous::Server::Start(options, std::move(callbacks)));
  coordinators_ = std::make_unique<GangCoordinators>(
      *server_, term_, [&backend = deps_.backend](const control::Key& key, const std::string& node) {
        return backend.DomainOf(key, node);
      });
  deps_.handle.SetCoordinators(coordinators_.get());
  log::Info("rendezvous port={} term={}", server_->port(), term_);
  PublishEndpoint();
  return Ok();
}

void Leader::PublishEndpoint() {
  if (!flags_.pod_ip.empty()) {
    EndpointPublisher::Options options;
    options.service = flags_.rendezvous_service;
    options.namespace_ = flags_.namespace_;
    options.ip = flags_.pod_ip;
    options.port = server_->port();
    options.may_write = deps_.may_write;
    endpoint_ = std::make_unique<EndpointPublisher>(deps_.api, std::move(options));
  }
  deps_.handle.SetProblemSource([this] { return endpoint_ ? endpoint_->Problem() : std::string(); });
}

void Leader::StartController() {
  control::Controller::Options options;
  options.seed = static_cast<uint64_t>(term_);
  options.on_gone = [this](const control::Key& key) { coordinators_->Forget(key); };
  options.on_decision = [this](const control::Key& key, const core::Observed& observed, const core::Decision&,
                               Time) { coordinators_->ForgetUnneeded(key, observed); };
  options.on_reconciled = [this](const control::Key&, const char* result, Duration took) {
    deps_.metrics.Reconciled(result, took);
  };
  options.on_failed_write = [this](const control::FailedWrite& write) {
    deps_.metrics.WriteFailed(core::ActionName(write.action), CodeName(write.error.code));
  };
  options.on_turn = [this](Duration waited, Duration worked) { deps_.metrics.QueueWaited(waited, worked); };
  loop_ = std::make_unique<control::Loop>(deps_.backend, std::move(options));
  loop_->Start();
  deps_.handle.SetGaugeSource([this](serve::Metrics::Gauges& gauges) { ReadGauges(gauges); });
  log::Info("controller=started term={} jobs={}", term_, deps_.backend.Keys().size());
}

void Leader::ReadGauges(serve::Metrics::Gauges& gauges) const {
  const control::Load load = loop_->load();
  gauges.queue_adds = load.added;
  gauges.queue_retries = load.retried;
  gauges.queue_depth = static_cast<int64_t>(load.waiting);
  gauges.writes_in_flight = static_cast<int64_t>(load.writing);
  gauges.workers_connected = server_->connected();
}

Status Leader::CheckWorker(const std::string& job, const std::string& pod, const std::string& uid,
                           int64_t attempt) const {
  const auto known = deps_.backend.FindPod(control::Key::Parse(job), pod);
  if (known && known->uid == uid) {
    if (known->attempt == attempt) return Ok();
    return Error{Code::kForbidden,
                 fmt::format("pod {} belongs to attempt {}, not {}", pod, known->attempt, attempt)};
  }
  if (deps_.backend.IsLeftBehind(control::Key::Parse(job), pod, uid))
    return Error{Code::kGone, fmt::format("the job {} of pod {} is gone", job, pod)};
  return Error{Code::kForbidden, fmt::format("pod {} ({}) is not a known worker of {}", pod, uid, job)};
}

}  // namespace ringmaster::operator_main
