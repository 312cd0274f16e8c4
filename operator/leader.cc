// SPDX-License-Identifier: Apache-2.0

#include "operator/leader.h"

#include <utility>

#include "base/log.h"
#include "operator/endpoint.h"

namespace ringmaster::operator_main {
namespace {

constexpr const char* kPapersSecret = "ringmaster-rendezvous";
const kube::Resource kEndpointSlices{"discovery.k8s.io", "v1", "endpointslices"};

control::Key KeyOf(const std::string& job) {
  const size_t slash = job.find('/');
  return {job.substr(0, slash), slash == std::string::npos ? std::string() : job.substr(slash + 1)};
}

// Every name under which agents may call.
std::vector<std::string> NamesOf(const Flags& flags) {
  const std::string service = flags.rendezvous_service + "." + flags.namespace_;
  std::vector<std::string> names = {service + ".svc", service, service + ".svc.cluster.local"};
  if (const auto address = ParseAddress(flags.rendezvous_advertise))
    names.insert(names.begin(), address->host);
  return names;
}

}  // namespace

void Board::SetGangs(Gangs* gangs) {
  std::lock_guard lock(mutex_);
  gangs_ = gangs;
}
void Board::WithGangs(const std::function<void(Gangs&)>& use) const {
  std::lock_guard lock(mutex_);
  if (gangs_ != nullptr) use(*gangs_);
}

void Board::SetNumbers(std::function<void(serve::Metrics::Gauges&)> fill) {
  std::lock_guard lock(mutex_);
  numbers_ = std::move(fill);
}
void Board::FillIn(serve::Metrics::Gauges& gauges) const {
  std::lock_guard lock(mutex_);
  if (numbers_) numbers_(gauges);
}

Leader::Leader(World world, const Flags& flags, int64_t term)
    : world_(std::move(world)),
      flags_(flags),
      term_(term),
      doorkeeper_(world_.api, [this](const auto& job, const auto& pod, const auto& uid, int64_t attempt) {
        return IsWorker(job, pod, uid, attempt);
      }) {
  identity::AuthorityKeeper::Options options;
  options.namespace_ = flags_.namespace_;
  options.secret_name = kPapersSecret;
  options.names = NamesOf(flags_);
  options.authority_life = flags_.ca_life;
  options.on_papers = [this](const identity::Papers& papers) {
    {
      std::lock_guard lock(mutex_);
      papers_ = papers;
    }
    world_.wake();
  };
  authority_ = std::make_unique<identity::AuthorityKeeper>(world_.api, std::move(options));
}

Leader::~Leader() {
  authority_.reset();
  world_.board.SetNumbers(nullptr);
  if (loop_) loop_->Stop();
  world_.board.SetGangs(nullptr);
  if (server_) server_->Shutdown();
}

Status Leader::Advance() {
  std::optional<identity::Papers> papers;
  {
    std::lock_guard lock(mutex_);
    papers = std::exchange(papers_, std::nullopt);
  }
  if (papers) {
    // Workers are told of an authority before it signs (authority.h), so the order of these two does not
    // matter.
    world_.backend.SetAuthority(papers->Bundle());
    if (server_) {
      RM_TRY(server_->SetCertificate(papers->leaf.cert_pem, papers->leaf.key_pem));
    } else {
      RM_TRY(StartServer(*papers));
    }
  }
  if (server_ && !loop_ && world_.backend.Synced()) StartController();
  return Ok();
}

Status Leader::StartServer(const identity::Papers& papers) {
  const auto address = ParseAddress(flags_.rendezvous_address);
  rendezvous::ServerOptions options;
  options.host = address->host;
  options.port = address->port;
  options.tls_cert_pem = papers.leaf.cert_pem;
  options.tls_key_pem = papers.leaf.key_pem;
  options.authenticate = [this](const rendezvous::Hello& hello, std::function<void(Status)> done) {
    doorkeeper_.Admit(hello, std::move(done));
  };
  rendezvous::ServerCallbacks callbacks;
  callbacks.on_report = [backend = &world_.backend](const std::string& job,
                                                    const rendezvous::Report& report) {
    backend->SetReport(KeyOf(job), report);
  };
  callbacks.on_event = [backend = &world_.backend](const std::string& job,
                                                   const rendezvous::EventLine& line) {
    log::Info("job={} {}", job, line.text);
    if (line.device_fault) backend->Record(KeyOf(job), {true, "DeviceTrouble", line.text});
  };
  RM_ASSIGN(server_, rendezvous::Server::Start(options, std::move(callbacks)));
  gangs_ = std::make_unique<Gangs>(*server_, term_);
  world_.board.SetGangs(gangs_.get());
  log::Info("rendezvous port={} term={}", server_->port(), term_);
  PublishEndpoint();
  return Ok();
}

void Leader::PublishEndpoint() {
  if (flags_.pod_ip.empty()) return;
  const Json slice =
      EndpointSliceFor(flags_.rendezvous_service, flags_.namespace_, flags_.pod_ip, server_->port());
  world_.api.Apply(kEndpointSlices, flags_.namespace_, flags_.rendezvous_service, "", slice, true,
                   [service = flags_.rendezvous_service](const Result<Json>& result) {
                     if (!result.ok())
                       log::Error("service={} endpoint=unpublished: agents do not find us; error={}", service,
                                  result.error().message);
                   });
}

void Leader::StartController() {
  control::Controller::Options options;
  options.seed = static_cast<uint64_t>(term_);
  options.on_gone = [this](const control::Key& key) { gangs_->Forget(key); };
  options.on_reconciled = [this](const control::Key&, const char* result, Duration took) {
    world_.metrics.Reconciled(result, took);
  };
  options.on_turn = [this](Duration waited, Duration worked) { world_.metrics.QueueWaited(waited, worked); };
  loop_ = std::make_unique<control::Loop>(world_.backend, std::move(options));
  loop_->Start();
  world_.board.SetNumbers([this](serve::Metrics::Gauges& gauges) { ReadNumbers(gauges); });
  log::Info("controller=started term={} jobs={}", term_, world_.backend.Keys().size());
}

void Leader::ReadNumbers(serve::Metrics::Gauges& gauges) const {
  const control::Load load = loop_->load();
  gauges.queue_adds = load.added;
  gauges.queue_retries = load.retried;
  gauges.queue_depth = static_cast<int64_t>(load.waiting);
  gauges.writes_in_flight = static_cast<int64_t>(load.writing);
  gauges.workers_connected = server_->connected();
}

Status Leader::IsWorker(const std::string& job, const std::string& pod, const std::string& uid,
                        int64_t attempt) const {
  const auto known = world_.backend.FindPod(KeyOf(job), pod);
  if (known && known->uid == uid) {
    if (known->attempt == attempt) return Ok();
    return Error{Code::kForbidden,
                 fmt::format("pod {} is of attempt {}, not of {}", pod, known->attempt, attempt)};
  }
  return Error{Code::kForbidden, fmt::format("pod {} ({}) is no worker of {} that we know", pod, uid, job)};
}

}  // namespace ringmaster::operator_main
