// SPDX-License-Identifier: Apache-2.0

#include "worker/library/session.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <utility>

#include "api/load.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "rendezvous/codec.h"
#include "rendezvous/member.h"
#include "worker/checkpoint/attempt.h"
#include "worker/compute/device/cpu_kind.h"
#include "worker/compute/device/host_gradient_device.h"
#include "worker/compute/device/load_plugin.h"
#include "worker/fabric/address.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::library {

using agent::Activity;
using rendezvous::Generation;
using trainer::Waiting;

namespace {

constexpr Duration kDiskPoll = milliseconds(10);
constexpr Duration kLongLoad = seconds(2);  // then users see a note

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<int> DescriptorFrom(const char* name) {
  const std::string text = Variable(name);
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    return Error{Code::kInvalid, fmt::format("{}: not a number: \"{}\"", name, text)};
  return value;
}

// What the agent allows this process, or else the CPUs that it may use.
int UsableThreads() {
  const int given = std::atoi(Variable("RINGMASTER_THREADS").c_str());
  return given > 0 ? given : fabric::UsableCpus();
}

Result<api::TrainingJob> LoadJob(const std::string& path) {
  RM_ASSIGN(const std::string text, ReadFile(path));
  api::Loaded loaded = api::LoadYaml(text);
  if (!loaded.problems.empty())
    return Error{Code::kInvalid, path + ": " + loaded.problems.front().ToString()};
  return std::move(loaded.job);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::Open(const std::string& transport) {
  std::unique_ptr<Session> session(new Session);
  session->transport_ = transport;
  session->threads_ = UsableThreads();
  const std::string pod = Variable("RINGMASTER_POD");
  const std::string member = Variable("RINGMASTER_MEMBER");
  if (Variable("RINGMASTER_CHANNEL_FD").empty()) {
    log::Init("program");
    if (session->transport_.empty()) session->transport_ = "shm";
    return session;
  }
  log::Init(fmt::format("program pod={} member={:.8}", pod.empty() ? "-" : pod, member));
  session->member_ = member;
  RM_ASSIGN(const int page_fd, DescriptorFrom("RINGMASTER_SLOT_FD"));
  RM_ASSIGN(const int channel_fd, DescriptorFrom("RINGMASTER_CHANNEL_FD"));
  // What the program starts must not hold them: the agent waits for the end of the channel.
  for (const int fd : {page_fd, channel_fd}) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  RM_ASSIGN(agent::TrainerPage page, agent::TrainerPage::Attach(page_fd));
  session->page_.emplace(std::move(page));
  session->SetActivity(Activity::kStarting);
  session->aborter_ = std::make_shared<fabric::Aborter>();
  session->channel_ = std::make_unique<trainer::AgentChannel>(
      Fd(channel_fd), [aborter = session->aborter_](Generation generation) { aborter->Abort(generation); });
  RM_ASSIGN(session->job_, LoadJob(Variable("RINGMASTER_JOB_FILE")));
  if (session->transport_.empty()) session->transport_ = session->job_->spec.network.transport;
  return session;
}

Session::~Session() {
  EndAttempt();
  Disconnect();
}

const std::atomic<bool>& Session::cancelled() const {
  return channel_ == nullptr ? never_ : channel_->cancelled();
}

void Session::SetActivity(Activity activity) {
  if (page_.has_value()) page_->SetActivity(activity);
}

void Session::Heartbeat() {
  if (page_.has_value()) page_->Heartbeat();
}

std::optional<Duration> Session::TimeToLeave() const {
  const std::optional<Time> since = page_.has_value() ? page_->LeavingSince() : std::nullopt;
  if (!since) return std::nullopt;
  // The agent waits no longer for the coordinator, and the pod is killed some time after the other limit.
  const Duration limit = std::min<Duration>(rendezvous::MemberOptions().leave_grace,
                                            seconds(job_->spec.checkpoint.gracePeriodSeconds));
  return std::max(Duration::zero(), *since + limit - Now());
}

Error Session::FailWith(int exit_code, const std::string& message) {
  EndAttempt();
  failure_ = message;
  exit_code_ = exit_code;
  return {Code::kInternal, message};
}

Error Session::Fail(const std::string& message) { return EndJob(kExitBadInput, message); }

Error Session::EndJob(int code, const std::string& message) {
  EndAttempt();
  if (channel_ != nullptr) {
    SetActivity(Activity::kWaiting);
    code = channel_->ReportFatal(code, message);
  }
  return FailWith(code, message);
}

Status Session::Join(Config config) {
  CHECK(!joined());
  config_ = std::move(config);
  if (job_.has_value()) {
    const api::Checkpoint& of_job = job_->spec.checkpoint;
    if (!config_.checkpoint_folder) config_.checkpoint_folder = of_job.path;
    if (!config_.checkpoint_every_steps) config_.checkpoint_every_steps = of_job.everySteps;
    if (!config_.checkpoint_keep) config_.checkpoint_keep = of_job.keep;
    config_.run = job_->metadata.namespace_ + "/" + job_->metadata.name;
    config_.checkpoint_from = of_job.from;
  } else {
    config_.checkpoint_from = Variable("RINGMASTER_CHECKPOINT_FROM");
  }
  identity_ = IdentityOf(config_);

  RM_TRY(OpenDevice());
  fabric::FabricOptions options;
  options.transport = transport_;
  if (page_.has_value()) options.on_wait = [this] { page_->StillWaiting(); };
  options.aborter = aborter_;
  auto fabric = fabric::Fabric::Create(options);
  if (!fabric.ok()) return Fail(fabric.error().In("fabric").message);
  fabric_ = std::move(fabric).value();
  auto sums = GradientSums::Create(fabric_.get(), device_.get(),
                                   {.tensors = config_.tensors,
                                    .micro_batches = config_.micro_batches,
                                    .exact = config_.exact,
                                    .limbs = config_.limbs});
  if (!sums.ok())
    return FailWith(sums.error().code == Code::kGone ? kExitDevice : kExitMemory, sums.error().message);
  sums_ = std::move(sums).value();
  if (!config_.digest_folder.empty()) {
    auto digests = StepDigests::Create(config_.digest_folder, member_, Variable("RINGMASTER_POD"),
                                       job_.has_value() ? config_.run : "", config_.tensors);
    if (!digests.ok()) {
      const bool passes =
          digests.error().code == Code::kUnavailable || digests.error().code == Code::kExhausted;
      if (!passes) return Fail(digests.error().In("digests of the steps").message);
      return AfterDigests(digests.error());
    }
    digests_ = std::move(digests).value();
  }
  search_ = std::make_unique<trainer::CheckpointSearch>(config_.checkpoint_folder.value_or(""), identity_);
  reporter_ = std::make_unique<trainer::Reporter>(channel_.get(), config_.steps);
  saver_ = std::make_unique<trainer::CheckpointSaver>(
      trainer::CheckpointSaver::Options{.folder = config_.checkpoint_folder.value_or(""),
                                        .keep = std::max(1, config_.checkpoint_keep.value_or(1)),
                                        .member = member_,
                                        .identity = identity_,
                                        .page = page_.has_value() ? &*page_ : nullptr,
                                        .reporter = reporter_.get(),
                                        .take_snapshot = [this] { return TakeSnapshot(); }});
  if (channel_ == nullptr) return Ok();

  const std::string address = fabric_->Address();
  if (address.size() > rendezvous::kMaxAddressBytes) {
    return Fail(
        fmt::format("the address of this worker has {} bytes, the limit is {}: lower the number of UCX "
                    "devices by UCX_NET_DEVICES",
                    address.size(), rendezvous::kMaxAddressBytes));
  }
  const std::string cpu = device::CpuKind();
  std::string device = config_.device_fingerprint.empty() ? "cpu" : config_.device_fingerprint;
  if (!device_->OnHost()) device += ", sums on " + device_->Fingerprint();
  channel_->Send(rendezvous::Facts{PlainName(device), "", "", {}});
  channel_->Send(rendezvous::Join{
      member_,
      address,
      {MembersFingerprint(config_), PlainName(config_.data_fingerprint), PlainName(cpu + ", " + device)}});
  return Ok();
}

Status Session::OpenDevice() {
  if (!config_.gpu) {
    device_ = std::make_unique<device::HostGradientDevice<device::GradientDevice>>();
    return Ok();
  }
  const auto found = device::FindPlugin(*config_.gpu);
  if (!found.ok())
    return EndJob(kExitDevice, fmt::format("gradients on a GPU cannot be summed: {}", found.error().message));
  auto opened = found->plugin->create_gradient_device(transport_, *config_.gpu);
  if (!opened.ok())
    return FailWith(opened.error().code == Code::kExhausted ? kExitMemory : kExitDevice,
                    opened.error().message);
  device_ = std::move(opened).value();
  log::Info("device={}", device_->Description());
  return Ok();
}

Session::Event Session::MakeEvent(EventKind kind) const {
  Event event;
  event.kind = kind;
  event.step = step_;
  event.generation = formed_.generation;
  event.rank = comm_ == nullptr ? 0 : comm_->rank();
  event.world = comm_ == nullptr ? 1 : comm_->world();
  return event;
}

Result<Session::Event> Session::Next() {
  CHECK(joined() && !failed());
  EndAttempt();
  if (loading_ != nullptr) Adopted();
  while (true) {
    Result<std::optional<Event>> taken = std::optional<Event>();
    switch (stage_) {
      case Stage::kOrder:
        taken = TakeOrder();
        break;
      case Stage::kLoad:
        taken = Load();
        break;
      case Stage::kShare:
        taken = Share();
        break;
      case Stage::kStart:
        taken = Start();
        break;
      case Stage::kSteps:
        taken = TakeStep();
        break;
      case Stage::kFinish:
        taken = Finish();
        break;
      case Stage::kEnded: {
        Event end = MakeEvent(EventKind::kEnd);
        end.finished = (step_ >= config_.steps || finish_requested_) && exit_code_ == 0;
        taken = std::optional(end);
        break;
      }
    }
    if (failed()) return taken.ok() ? Error{Code::kInternal, *failure_} : taken.error();
    if (!taken.ok()) {
      RM_TRY(GenerationFailed(taken.error()));
      continue;
    }
    if (!taken->has_value()) continue;
    event_ = **taken;
    // What the program does now takes as long as it takes; its micro-batches show progress by heartbeats.
    SetActivity(event_.kind == EventKind::kEnd ? Activity::kWaiting : Activity::kComputing);
    return event_;
  }
}

// ---- orders

Result<std::optional<Session::Event>> Session::TakeOrder() {
  if (channel_ == nullptr) {
    rendezvous::NewGeneration alone;
    alone.generation = 1;
    alone.members = {{member_, "", fabric_->Address()}};
    RM_TRY(BeginGeneration(std::move(alone)));
    return std::optional<Event>();
  }
  SetActivity(Activity::kWaiting);
  if (!order_.has_value()) order_ = channel_->WaitForOrder();
  if (const auto* exit = std::get_if<rendezvous::Exit>(&*order_)) {
    log::Info("exit code={} reason=\"{}\"", exit->code, exit->reason);
    exit_code_ = exit->code;
    stage_ = Stage::kEnded;
    return std::optional<Event>();
  }
  if (const auto* prepare = std::get_if<rendezvous::Prepare>(&*order_)) {
    Disconnect();
    if (has_state_ && !described_) return std::optional(MakeEvent(EventKind::kDescribe));
    RM_TRY(Answer(*prepare));
    order_.reset();
    return std::optional<Event>();
  }
  const rendezvous::Message order = *std::exchange(order_, std::nullopt);
  RM_TRY(BeginGeneration(std::get<rendezvous::NewGeneration>(order)));
  return std::optional<Event>();
}

Status Session::Answer(const rendezvous::Prepare& prepare) {
  rendezvous::MemberStatus status;
  status.generation = prepare.generation;
  status.member = member_;
  status.has_state = has_state_;
  if (has_state_) {
    const StateHashes hashes = Hashes();
    status.step = step_;
    status.params_hash = hashes.params;
    status.optimizer_hash = hashes.others;
    if (log::Enabled(log::Level::kDebug)) {  // it reads the whole state once more
      for (const StateArray& array : State())
        log::Debug("step={} array={} hash={}", step_, array.name, HashHex(Hash64(array.bytes)));
    }
  }
  if (prepare.find_checkpoint) search_->Answer(trainer::CheckpointSearch::kPatience, &status);
  channel_->Send(status);
  return Ok();
}

Status Session::BeginGeneration(rendezvous::NewGeneration formed) {
  const auto self = std::ranges::find(formed.members, member_, &rendezvous::Member::id);
  if (self == formed.members.end()) return Ok();  // a standby in this generation
  if (channel_ != nullptr && !channel_->Begin(formed.generation)) return Ok();
  Disconnect();
  search_->Forget();
  unreachable_.reset();
  diverged_.reset();
  committed_.clear();
  compared_step_ = -1;
  formed_ = std::move(formed);
  RM_TRY(Connect());
  if (page_.has_value()) page_->SetGeneration(formed_.generation);
  log::Info("generation={} rank={} world={} transport={}", formed_.generation, comm_->rank(), comm_->world(),
            fabric_->TransportName());
  sources_ = formed_.sources;
  // A load that an earlier generation started is of no use when another member has the state or loads it.
  if (!sources_.empty() || comm_->rank() != formed_.loader) loader_.reset();
  if (sources_.empty()) {
    sources_ = {formed_.loader};
    stage_ = Stage::kLoad;
    return Ok();
  }
  if (std::ranges::find(sources_, comm_->rank()) != sources_.end() &&
      (!has_state_ || step_ != formed_.start_step)) {
    return Error{Code::kInternal, fmt::format("named as a source of step {}, but at step {}",
                                              formed_.start_step, has_state_ ? step_ : -1)};
  }
  stage_ = Stage::kShare;
  return Ok();
}

Status Session::Connect() {
  fabric::Membership group;
  group.generation = formed_.generation;
  for (const rendezvous::Member& member : formed_.members) {
    if (member.id == member_) group.rank = static_cast<int>(group.addresses.size());
    group.addresses.push_back(member.address);
  }
  const Waiting waiting(page_.has_value() ? &*page_ : nullptr);
  auto connected = fabric_->Connect(group);
  if (!connected.ok()) {
    const std::string& why = connected.error().message;
    if (!fabric_->Unreachable().empty()) unreachable_ = why + "; see UCX_TLS and UCX_NET_DEVICES";
    // The loaded UCX cannot connect over this machine's ports: a retry does not help.
    if (connected.error().code == Code::kForbidden) fatal_ = why;
    return connected.error();
  }
  comm_ = std::move(connected).value();
  return Ok();
}

Status Session::ConnectDevices() {
  RM_TRY(device_->BindThread());
  const Waiting waiting(page_.has_value() ? &*page_ : nullptr);
  auto connected = device_->Collectives(comm_.get(), &cancelled());
  if (!connected.ok()) {
    // Library versions differ: a retry does not help.
    if (connected.error().code == Code::kInvalid) fatal_ = connected.error().message;
    return connected.error();
  }
  device_comm_ = std::move(connected).value();
  return Ok();
}

std::string Session::Transport() const {
  const std::string of_device = device_comm_ == nullptr ? "" : device_->CollectivesTransport();
  return of_device.empty() ? fabric_->TransportName() : of_device;
}

void Session::Disconnect() {
  device_comm_.reset();
  comm_.reset();
}

Status Session::GenerationFailed(const Error& error) {
  stage_ = Stage::kOrder;
  EndAttempt();
  if (fatal_.has_value()) {
    log::Error("{}", *fatal_);
    return Fail(*fatal_);
  }
  if (error.code == Code::kCancelled) return Ok();
  if (channel_ == nullptr) return FailWith(kExitInternal, error.message);
  log::Warn("generation {} ended: {}: {}", formed_.generation, CodeName(error.code), error.message);
  if (error.code == Code::kGone || error.code == Code::kConflict) return FailWith(kExitDevice, error.message);
  if (error.code == Code::kExhausted) return FailWith(kExitMemory, error.message);
  if (error.code == Code::kCorrupt || error.code == Code::kInternal)
    return FailWith(kExitInternal, error.message);
  channel_->Send(rendezvous::OperationFailed{formed_.generation, member_,
                                             unreachable_.value_or(error.message), unreachable_.has_value(),
                                             fabric_->Unreachable(), diverged_.has_value()});
  return Ok();
}

// ---- the state

Status Session::Describe(std::vector<StateArray> arrays, std::string meta) {
  std::set<std::string_view> names;
  for (const StateArray& array : arrays) {
    if (array.name.empty() || array.name.starts_with(kReserved) || !names.insert(array.name).second)
      return Error{
          Code::kInvalid,
          fmt::format("the state has an array of the name \"{}\", which is empty, reserved or given twice",
                      array.name)};
  }
  described_arrays_ = std::move(arrays);
  described_meta_ = std::move(meta);
  described_ = true;
  return Ok();
}

std::vector<StateArray> Session::State() {
  CHECK(described_);
  std::vector<StateArray> arrays = described_arrays_;
  arrays.push_back({kMeta, "u8", std::as_writable_bytes(std::span(described_meta_)), false});
  if (config_.exact) arrays.push_back({kExponents, "i32", std::as_writable_bytes(sums_->exponents()), false});
  return arrays;
}

StateHashes Session::Hashes() { return HashState(State(), step_, threads_); }

Result<std::optional<Session::Event>> Session::Load() {
  const bool loads = comm_->rank() == formed_.loader;
  if (loads && loader_ == nullptr && !config_.checkpoint_folder.value_or("").empty()) {
    SetActivity(Activity::kStarting);
    loader_ = std::make_unique<Loader>();
    loader_->work = std::make_unique<trainer::BackgroundWork>([loader = loader_.get(),
                                                               folder = *config_.checkpoint_folder,
                                                               identity = identity_, member = member_] {
      checkpoint::TakeFolderOrWarn(folder, member);
      loader->found = checkpoint::LoadNewest(folder, identity, &loader->cancel);
      if (!loader->found.ok()) loader->note = checkpoint::NoteOfOldPath(folder, identity.run);
    });
  }
  Time note_at = Now() + kLongLoad;
  RM_TRY(trainer::WaitForRoot(comm_.get(), formed_.loader, &cancelled(), [this, &note_at] {
    const bool loaded = loader_ == nullptr || loader_->work->Wait(kDiskPoll);
    if (!loaded && Now() >= note_at && channel_ != nullptr) {
      reporter_->NoteOfAnyMember("loading the checkpoint");
      note_at += seconds(1);
    }
    return loaded;
  }));
  stage_ = Stage::kShare;
  if (!loads) return std::optional<Event>();
  Result<checkpoint::Loaded> found = Error{Code::kNotFound, ""};
  std::string note;
  if (const std::unique_ptr<Loader> loader = std::move(loader_)) {
    loader->work.reset();
    found = std::move(loader->found);
    note = std::move(loader->note);
  }
  RM_TRY(CheckFound(found));
  if (!found.ok()) {
    // No member has ever had another state than that with which programs start.
    if (has_state_ && step_ > 0) return Error{Code::kInternal, "no state to start from"};
    has_state_ = true;
    log::Info("starting from the program's own state");
    if (!note.empty()) {
      log::Warn("{}", note);
      reporter_->NoteOfAnyMember(note);
    }
    return std::optional<Event>();
  }
  for (const std::string& skipped : found->skipped) reporter_->CheckpointSkipped(skipped);
  log::Info("continuing from {} step={}", found->path, found->step);
  saver_->ContinuedFrom(found->step, found->parent);
  reporter_->ContinuedWithChanges(found->path, found->AllChanges());
  // A run that ended early continues when it is given another number of steps, as one that has ended does.
  const bool ended =
      found->meta.value("finish", false) && found->meta.value("steps", config_.steps) == config_.steps;
  loading_info_ = {found->step, ended, found->meta.value("records", Json::array())};
  const std::string agreed = found->changed.empty() ? found->state : "";
  RM_ASSIGN(OwnedState state, StateOf(std::move(found).value()));
  if (!agreed.empty() && TextOf(HashState(state.views(), loading_info_.step, threads_)) != agreed) {
    fatal_ = fmt::format(
        "the checkpoint of step {} has another state than the members of the run agreed on ({}); "
        "remove it",
        loading_info_.step, agreed);
    return Error{Code::kCorrupt, *fatal_};
  }
  loading_ = std::make_unique<OwnedState>(std::move(state));
  return std::optional(MakeEvent(EventKind::kLoad));
}

Status Session::CheckFound(const Result<checkpoint::Loaded>& found) {
  const std::string folder = config_.checkpoint_folder.value_or("");
  if (!found.ok() && found.error().code != Code::kNotFound) {
    // What cannot be read here and now may be readable on another node, or later: the process ends, not the
    // job.
    if (found.error().code == Code::kUnavailable) return Error{Code::kGone, found.error().message};
    if (found.error().code != Code::kCancelled) fatal_ = found.error().message;
    return found.error();
  }
  if (!found.ok() && !identity_.from.empty()) {
    fatal_ = found.error().message;
    return Error{Code::kInvalid, *fatal_};
  }
  if (found.ok() && found->step < formed_.checkpoint_floor && found->skipped_unread)
    return Error{Code::kGone, found->skipped.front()};
  if (found.ok() && found->step > config_.steps) {
    fatal_ = fmt::format("{}: has {} steps, more than the {} of this run; raise them, or use another folder",
                         found->path, found->step, config_.steps);
    return Error{Code::kInvalid, *fatal_};
  }
  if ((found.ok() ? found->step : -1) < formed_.checkpoint_floor) {
    fatal_ = trainer::MissingCheckpoint(folder, formed_.checkpoint_floor, found.ok() ? &*found : nullptr);
    return Error{Code::kInvalid, *fatal_};
  }
  return Ok();
}

void Session::Adopted() {
  for (const auto& [array, memory] : loading_->arrays) {
    if (array.name != kExponents) continue;
    const std::span<std::byte> exponents = std::as_writable_bytes(sums_->exponents());
    if (exponents.size() == array.bytes.size()) std::ranges::copy(array.bytes, exponents.begin());
  }
  reporter_->Restore(loading_info_.records);
  step_ = loading_info_.step;
  finish_requested_ = loading_info_.finish;
  sums_->SetStep(step_);
  has_state_ = true;
  described_ = false;
  ++version_;
  attempts_ = 0;
  loading_.reset();
}

Result<std::optional<Session::Event>> Session::Share() {
  if (sources_.size() == formed_.members.size()) {
    stage_ = Stage::kStart;
    return std::optional<Event>();
  }
  if (std::ranges::find(sources_, comm_->rank()) != sources_.end()) {
    if (!described_) return std::optional(MakeEvent(EventKind::kDescribe));
    const Waiting waiting(page_.has_value() ? &*page_ : nullptr);
    const Json info = {
        {"step", step_}, {"finish", finish_requested_}, {"records", reporter_->RecordsForCheckpoint()}};
    RM_TRY(SendState(comm_.get(), sources_, State(), info));
    stage_ = Stage::kStart;
    return std::optional<Event>();
  }
  const Waiting waiting(page_.has_value() ? &*page_ : nullptr);
  RM_ASSIGN(ReceivedState received, ReceiveState(comm_.get(), sources_));
  loading_info_ = {received.info.value("step", int64_t{0}), received.info.value("finish", false),
                   received.info.value("records", Json::array())};
  // A source that changed after the members had voted would otherwise spread what it holds.
  if (!formed_.sources.empty() && HashState(received.state.views(), loading_info_.step, threads_) !=
                                      StateHashes{formed_.params_hash, formed_.optimizer_hash}) {
    return Error{Code::kCorrupt,
                 fmt::format("the received state of step {} is not the one that the members agreed on",
                             loading_info_.step)};
  }
  loading_ = std::make_unique<OwnedState>(std::move(received.state));
  stage_ = Stage::kStart;
  return std::optional(MakeEvent(EventKind::kLoad));
}

}  // namespace ringmaster::library
