// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/trainer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/exit_codes.h"
#include "base/hash.h"
#include "base/log.h"
#include "rendezvous/codec.h"
#include "rendezvous/transport_name.h"
#include "worker/trainer/agree.h"
#include "worker/trainer/compare_states.h"
#include "worker/trainer/memory.h"
#include "worker/trainer/root_work.h"
#include "worker/trainer/transfer.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::trainer {

using agent::Activity;
using rendezvous::Done;
using rendezvous::Exit;
using rendezvous::Join;
using rendezvous::MemberStatus;
using rendezvous::NewGeneration;
using rendezvous::OperationFailed;
using rendezvous::Prepare;

namespace {

constexpr Duration kHashPoll = milliseconds(100);
constexpr Duration kLongHash = seconds(2);  // then users see how far it is
constexpr Duration kHashNotes = seconds(10);

// Returns the exit code for errors of this member alone that no order can resolve: the process must exit.
std::optional<int> ExitFor(const Error& error) {
  if (error.code == Code::kGone || error.code == Code::kConflict) return kExitDevice;
  if (error.code == Code::kExhausted) return kExitMemory;
  if (error.code == Code::kCorrupt || error.code == Code::kInternal) return kExitInternal;
  return std::nullopt;
}

std::string WithoutRdma(const std::string& instead) {
  return fmt::format(
      "spec.network.rdma: RDMA is required, but {}. Run `ringmaster-worker devices --health` in this pod and "
      "check that a port is ACTIVE, that /dev/infiniband is in the pod, and that UCX_TLS and UCX_NET_DEVICES "
      "do not exclude it; or set spec.network.fallback to warn or allow",
      instead);
}

}  // namespace

Trainer::Trainer(Parts parts)
    : parts_(std::move(parts)),
      layout_(parts_.model->layout()),
      identity_(IdentityOf(parts_.config, layout_, parts_.dataset->Fingerprint())),
      search_(parts_.config.checkpoint_path, identity_),
      reporter_(parts_.channel, parts_.config.steps),
      progress_log_(parts_.config.steps),
      saver_({.folder = parts_.config.checkpoint_path,
              .keep = parts_.config.checkpoint_keep,
              .member = parts_.member,
              .identity = identity_,
              .page = parts_.page,
              .reporter = &reporter_,
              .take_snapshot = [this] { return TakeSnapshot(); }}) {}

Result<std::unique_ptr<Trainer>> Trainer::Create(Parts parts) {
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(parts)));
  Parts& own = trainer->parts_;
  RM_ASSIGN(trainer->state_, TrainState::Create(own.device.get(), own.fabric.get(), trainer->layout_,
                                                own.config.optimizer.kind, own.config.exact));
  RM_ASSIGN(trainer->stepper_,
            Stepper::Create({&own.config, own.dataset.get(), own.device.get(), own.model.get(),
                             own.fabric.get(), trainer->state_.get(), own.page}));
  return trainer;
}

std::optional<int> Trainer::JoinJob() {
  AgentChannel& channel = *parts_.channel;
  const std::string address = parts_.fabric->Address();
  if (address.size() > rendezvous::kMaxAddressBytes) {
    return FailPermanently(
        fmt::format("the address of this worker has {} bytes, the limit is {}: lower the number of UCX "
                    "devices by UCX_NET_DEVICES",
                    address.size(), rendezvous::kMaxAddressBytes));
  }
  Time note_at = Now() + kLongHash;
  for (int64_t done = 0; !parts_.data_hash->Wait(kHashPoll);) {
    // The time for starting is one without progress.
    if (const int64_t now_done = parts_.data_hash->Done(); std::exchange(done, now_done) != now_done)
      parts_.page->Heartbeat();
    if (Now() >= note_at) {
      const std::string note =
          fmt::format("hashing the data, {} %", std::max(0, parts_.data_hash->Percent()));
      log::Info("{}", note);
      reporter_.NoteOfAnyMember(note);
      note_at += kHashNotes;
    }
    const auto order = channel.WaitForOrder(Duration::zero());
    if (!order.has_value()) continue;
    if (const auto* exit = std::get_if<Exit>(&*order)) {  // no other order comes before a Join
      log::Info("exit code={} reason=\"{}\"", exit->code, exit->reason);
      return exit->code;
    }
  }
  const Result<data::ContentHash> content = parts_.data_hash->result();
  parts_.data_hash.reset();
  if (!content.ok()) {
    if (content.error().code != Code::kUnavailable) return FailPermanently(content.error().message);
    log::Error("{}", content.error().message);
    return kExitDevice;
  }
  channel.Send(Join{
      parts_.member,
      address,
      {FingerprintOfMembers(parts_.config, layout_), HashHex(content->value), parts_.device->Fingerprint()}});
  return std::nullopt;
}

int Trainer::Run() {
  AgentChannel& channel = *parts_.channel;
  if (const auto code = JoinJob()) return *code;
  while (true) {
    parts_.page->SetActivity(Activity::kWaiting);
    const auto order = channel.WaitForOrder();
    if (const auto* exit = std::get_if<Exit>(&*order)) {
      log::Info("exit code={} reason=\"{}\"", exit->code, exit->reason);
      return exit->code;
    }
    if (const auto* prepare = std::get_if<Prepare>(&*order)) {
      if (const Status answered = Answer(*prepare); !answered.ok()) {
        log::Error("the state cannot be read: {}: {}", CodeName(answered.error().code),
                   answered.error().message);
        return ExitFor(answered.error()).value_or(kExitInternal);
      }
      continue;
    }
    const Status status = RunGeneration(std::get<NewGeneration>(*order));
    if (fatal_.has_value()) return FailPermanently(*fatal_);
    if (status.ok() || status.error().code == Code::kCancelled) continue;
    log::Warn("generation {} ended: {}: {}", std::get<NewGeneration>(*order).generation,
              CodeName(status.error().code), status.error().message);
    if (const auto code = ExitFor(status.error())) return *code;
    // An order follows. It takes as long as the coordinator is away; meanwhile this process may hold the only
    // copy of the state, so nothing but an order or the end of its agent ends the wait. A member that is cut
    // off is evicted.
    channel.Send(OperationFailed{std::get<NewGeneration>(*order).generation, parts_.member,
                                 unreachable_.value_or(status.error().message), unreachable_.has_value(),
                                 parts_.fabric->Unreachable(), diverged_.has_value()});
  }
}

void Trainer::Disconnect() {
  join_.reset();
  device_comm_.reset();
  comm_.reset();
}

Status Trainer::Answer(const Prepare& prepare) {
  Disconnect();
  MemberStatus status;
  status.generation = prepare.generation;
  status.member = parts_.member;
  status.has_state = state_->present();
  if (status.has_state) {
    status.step = state_->step();
    status.can_roll_back = state_->can_roll_back();
    RM_ASSIGN(const TrainState::Hashes hashes, state_->StateHashes());
    status.params_hash = hashes.params;
    status.optimizer_hash = hashes.optimizer;
    if (status.can_roll_back) {
      RM_ASSIGN(const TrainState::Hashes undo, state_->UndoHashes());
      status.undo_params_hash = undo.params;
      status.undo_optimizer_hash = undo.optimizer;
    }
  }
  if (prepare.find_checkpoint) search_.Answer(CheckpointSearch::kPatience, &status);
  parts_.channel->Send(status);
  return Ok();
}

Status Trainer::RunGeneration(const NewGeneration& formed) {
  const auto self = std::ranges::find(formed.members, parts_.member, &rendezvous::Member::id);
  if (self == formed.members.end()) return Ok();  // this member is a standby in this generation
  if (!parts_.channel->Begin(formed.generation)) return Ok();
  fabric::Membership group;
  group.generation = formed.generation;
  group.rank = static_cast<int>(self - formed.members.begin());
  pods_.clear();
  for (const rendezvous::Member& member : formed.members) {
    group.addresses.push_back(member.address);
    pods_.push_back(member.pod);
  }
  Disconnect();
  search_.Forget();
  unreachable_.reset();
  diverged_.reset();
  RM_TRY(Connect(group));
  parts_.page->SetGeneration(formed.generation);
  log::Info("generation={} rank={} world={} transport={}", formed.generation, group.rank,
            formed.members.size(), parts_.fabric->TransportName());
  RM_TRY(Synchronize(formed));
  if (device_comm_ != nullptr)
    log::Info("generation={} rank={} world={} transport={}", formed.generation, group.rank,
              formed.members.size(), Transport());
  RM_TRY(CheckRdma());
  saver_.BeginGeneration(group.rank == 0, formed.sources.empty());
  reporter_.StartGeneration(state_->step(), group.rank == 0, Transport());
  progress_log_.StartGeneration(group.rank, Transport());
  last_commit_ = Now();
  if (formed.stop) return Finish(false);
  const int64_t steps = parts_.config.steps;
  RM_TRY(RunSteps());
  return state_->step() >= steps ? Finish(true) : Ok();
}

// Returns the transport of gradients. The state for joining members always uses the fabric.
std::string Trainer::Transport() const {
  const std::string of_device = device_comm_ == nullptr ? "" : parts_.device->CollectivesTransport();
  return of_device.empty() ? parts_.fabric->TransportName() : of_device;
}

Status Trainer::Connect(const fabric::Membership& group) {
  auto connected = parts_.fabric->Connect(group);
  if (!connected.ok()) {
    // If the peer is dead, an order follows soon. Otherwise a retry does not help: pods that require RDMA may
    // not use TCP, so a missing RDMA device shows up as an unreachable peer.
    const std::string& why = connected.error().message;
    if (connected.error().code == Code::kForbidden) fatal_ = why;
    if (!parts_.fabric->Unreachable().empty())
      unreachable_ =
          parts_.config.rdma_or_fail ? WithoutRdma(why) : why + "; see UCX_TLS and UCX_NET_DEVICES";
    return connected.error();
  }
  comm_ = std::move(connected).value();
  return Ok();
}

// UCX and NCCL fall back silently: a job that requires RDMA would continue ten times slower.
Status Trainer::CheckRdma() {
  const std::string transport = Transport();
  if (!parts_.config.rdma_or_fail || !rendezvous::UsesTcp(transport)) return Ok();
  fatal_ = WithoutRdma("gradients would travel over " + transport);
  return Error{Code::kInvalid, *fatal_};
}

Status Trainer::Synchronize(const NewGeneration& formed) {
  std::vector<int32_t> sources = formed.sources;
  // A load that an earlier generation started is of no use when another member has the state or loads it.
  if (!sources.empty() || comm_->rank() != formed.loader) loader_.reset();
  if (sources.empty()) {
    sources = {formed.loader};
    RM_TRY(LoadOnRoot(formed.loader, formed.checkpoint_floor));
  } else if (std::ranges::find(sources, comm_->rank()) != sources.end()) {
    const bool back = state_->present() && state_->step() == formed.start_step + 1 && state_->can_roll_back();
    if (back) state_->RollBack();
    if (!state_->present() || state_->step() != formed.start_step) {
      return Error{Code::kInternal, fmt::format("named as a source of step {}, but at step {}",
                                                formed.start_step, state_->present() ? state_->step() : -1)};
    }
    if (back) RM_TRY(CompareWithVote(formed));
  }
  RM_TRY(AgreeOnDevice(comm_.get(), sources.front(), parts_.device.get()));
  if (parts_.config.validate_every_steps > 0) {
    RM_ASSIGN(const auto validated, AgreeOnValidation(comm_.get(), sources.front(), reporter_.validation()));
    reporter_.RestoreValidation(validated);
  }
  if (sources.size() < formed.members.size()) RM_TRY(ShareWithJoining(formed, sources));
  auto made = parts_.device->Collectives(comm_.get(), &parts_.channel->cancelled());
  if (!made.ok()) {
    // Library versions differ: a retry does not help.
    if (made.error().code == Code::kInvalid) fatal_ = made.error().message;
    return made.error();
  }
  device_comm_ = std::move(made).value();
  parts_.page->SetStep(state_->step());
  return Ok();
}

Status Trainer::ShareWithJoining(const NewGeneration& formed, const std::vector<int32_t>& sources) {
  const bool has_state = std::ranges::find(sources, comm_->rank()) != sources.end();
  // Rank 0 writes checkpoints and reports, so it must have the state. The first source decides for all.
  uint64_t piece_bytes = 0;  // 0: at once
  if (comm_->rank() == sources.front() && !formed.fetch_first && state_->step() < parts_.config.steps &&
      std::ranges::find(sources, 0) != sources.end()) {
    piece_bytes = JoinTransfer::PieceBytes(*state_);
  }
  RM_TRY(comm_->Broadcast(std::as_writable_bytes(std::span(&piece_bytes, 1)), sources.front()));
  std::vector<rendezvous::StepRecord> records = reporter_.kept();
  if (piece_bytes == 0) {
    RM_TRY(ShareState(comm_.get(), sources, state_.get(), &records));
    if (!has_state && !formed.sources.empty()) RM_TRY(CompareWithVote(formed));
  } else {
    RM_ASSIGN(join_, JoinTransfer::Begin(comm_.get(), sources, piece_bytes, state_.get(), &records));
  }
  if (!has_state) reporter_.Restore(records);
  return Ok();
}

Status Trainer::FinishJoin() {
  if (join_ == nullptr) return Ok();
  RM_TRY(stepper_->FinishJoin({comm_.get(), device_comm_.get()}, join_.get()));
  ReportJoin();
  return Ok();
}

void Trainer::ReportJoin() {
  if (join_->done()) {
    log::Info("generation={} step={} every member has the state", comm_->generation(), state_->step());
    reporter_.Note("");
    join_.reset();
    return;
  }
  constexpr double kMib = 1 << 20;
  const std::string text =
      fmt::format("{} of {} workers fetch the state: {:.0f} of {:.0f} MiB", comm_->world() - join_->owners(),
                  comm_->world(), static_cast<double>(join_->bytes_sent()) / kMib,
                  static_cast<double>(join_->bytes()) / kMib);
  log::Info("generation={} step={} {}", comm_->generation(), state_->step(), text);
  reporter_.Note(text);
}

// A source that changed after the members had voted would otherwise spread what it holds.
Status Trainer::CompareWithVote(const NewGeneration& formed) {
  RM_ASSIGN(const TrainState::Hashes held, state_->StateHashes());
  if (held == TrainState::Hashes{formed.params_hash, formed.optimizer_hash}) return Ok();
  state_->Discard();
  return Error{Code::kCorrupt, fmt::format("the state of step {} is not the one that the members agreed on",
                                           formed.start_step)};
}

Status Trainer::CompareMembers() {
  std::vector<StatePart> parts;
  if (state_->present()) {
    RM_ASSIGN(const TrainState::Hashes hashes, state_->StateHashes());
    parts = {{"parameters", hashes.params}, {"optimizer state", hashes.optimizer}};
  }
  Result<std::string> text = std::string();
  {
    const Waiting waiting(parts_.page);
    text = CompareStates(comm_.get(), parts, pods_);
  }
  RM_TRY(text);
  if (text->empty()) return Ok();
  diverged_ = fmt::format("the states of step {} differ: {}", state_->step(), *text);
  return Error{Code::kUnavailable, *diverged_};
}

Status Trainer::RunSteps() {
  AgentChannel& channel = *parts_.channel;
  const RunConfig& config = parts_.config;
  // The generation before may have ended during the validation, or at a boundary just before it.
  RM_TRY(ValidateIfDue());
  while (state_->step() < config.steps) {
    parts_.page->SetActivity(Activity::kComputing);
    auto result = stepper_->Run(
        {comm_.get(), device_comm_.get()}, &channel.cancelled(),
        [&channel] { return channel.boundary_wanted(); }, join_.get());
    if (!result.ok()) {
      if (result.error().code == Code::kInvalid) fatal_ = result.error().message;
      return result.error();
    }
    if (result->states_differ) {
      RM_TRY(CompareMembers());
      return Error{Code::kInternal, "the digests of equal states differ"};
    }
    const Time now = Now();
    const rendezvous::StepRecord record{
        state_->step(),  result->loss,        result->learning_rate, result->gradient_norm,
        result->samples, comm_->generation(), comm_->world(),        ToSeconds(now - last_commit_)};
    reporter_.Committed(record);
    if (const auto line = progress_log_.Committed(record, result->busy, result->micro_batches, now))
      log::Info("{}", *line);
    last_commit_ = now;
    parts_.page->SetStep(state_->step());
    if (join_ != nullptr) ReportJoin();
    saver_.ReportPublished();
    if (const auto& refused = saver_.refused()) {
      if (refused->code == Code::kConflict) fatal_ = refused->message;
      return *refused;
    }
    const bool due = !config.checkpoint_path.empty() && config.checkpoint_every_steps > 0 &&
                     state_->step() % config.checkpoint_every_steps == 0 && state_->step() < config.steps;
    if (due) RM_TRY(CompareMembers());  // no checkpoint has a state that the other members do not hold
    if (due && comm_->rank() == 0) saver_.SavePeriodic(state_->step());
    if (result->stop_at_boundary) {
      reporter_.Flush();
      return Ok();
    }
    RM_TRY(ValidateIfDue());
  }
  return Ok();
}

Status Trainer::ValidateIfDue() {
  const int64_t step = state_->step();
  const int64_t every = parts_.config.validate_every_steps;
  if (every <= 0 || step == 0 || step % every != 0 || step >= parts_.config.steps) return Ok();
  if (parts_.dataset->size(data::Split::kValidation) == 0) return Ok();  // DataNotes says so
  if (reporter_.validation().has_value() && reporter_.validation()->step >= step) return Ok();
  parts_.page->SetActivity(Activity::kComputing);
  RM_ASSIGN(const Validation validation, Validate());
  const rendezvous::ValidationResult validated{step, validation.loss, validation.accuracy};
  reporter_.Validated(validated);
  progress_log_.Validated(validated);
  return Ok();
}

Result<Validation> Trainer::Validate() {
  auto validation = trainer::Validate(
      parts_.config, *parts_.dataset, parts_.model.get(), {state_->current().params, state_->version()},
      comm_.get(), &parts_.channel->cancelled(), parts_.page, join_.get(), parts_.device->OnHost());
  if (join_ != nullptr) join_->Pause();
  if (!validation.ok() && validation.error().code == Code::kInvalid) fatal_ = validation.error().message;
  return validation;
}

Status Trainer::Finish(bool finished) {
  RM_TRY(FinishJoin());
  // Any member may send Done, and rank 0 writes the checkpoint.
  RM_TRY(CompareMembers());
  // Released while all members are there. Otherwise the end of the job would revoke it while they leave,
  // which took longer than the watchdog waits where processes shared an H200, and ended the trainer with
  // code 74.
  device_comm_.reset();
  reporter_.Flush();
  Done done;
  done.finished = finished;
  done.step = state_->step();
  done.loss = state_->current().loss;
  done.saved = !parts_.config.checkpoint_path.empty();
  done.validation_loss = std::numeric_limits<double>::quiet_NaN();  // unless there is a validation
  if (finished) {
    reporter_.Note("validating");
    parts_.page->SetActivity(Activity::kComputing);
    RM_ASSIGN(const Validation validation, Validate());
    if (validation.samples > 0) {
      done.validation_loss = validation.loss;
      done.validation_accuracy = validation.accuracy;
      log::Info("{}", progress_log_.LastValidation({done.step, validation.loss, validation.accuracy}));
    }
  }
  if (done.saved) RM_TRY(saver_.SaveLast(comm_.get(), &parts_.channel->cancelled(), state_->step(), &fatal_));
  parts_.page->SetActivity(Activity::kSaving);
  if (const auto held = ReadMemoryUsage(); held.ok()) {
    const MemoryNeed need =
        EstimateMemory(parts_.config, *parts_.model, parts_.device->OnHost(), saver_.writes());
    log::Info("memory {:.1f} MiB, {:.2f} x the estimate: {}; mapped files {:.1f} MiB",
              static_cast<double>(held->own) / (1 << 20),
              static_cast<double>(held->own) / static_cast<double>(need.Total()), need.ToString(),
              static_cast<double>(held->files) / (1 << 20));
  }
  RM_ASSIGN(const uint64_t weights_hash, state_->ParamsHash());
  RM_ASSIGN(const uint64_t optimizer_hash, state_->OptimizerHash());
  done.weights_hash = HashHex(weights_hash);
  done.optimizer_hash = HashHex(optimizer_hash);
  parts_.page->SetActivity(Activity::kWaiting);
  // No member sends Done before the checkpoint exists; afterwards any surviving member can send it.
  RM_TRY(comm_->Barrier());
  reporter_.RepeatAll();
  parts_.channel->Send(done);
  return Ok();
}

int Trainer::FailPermanently(const std::string& message) {
  log::Error("{}", message);
  parts_.page->SetActivity(Activity::kWaiting);
  return parts_.channel->ReportFatal(kExitBadInput, message);
}

}  // namespace ringmaster::trainer
