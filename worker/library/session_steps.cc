// SPDX-License-Identifier: Apache-2.0

// The part of Session in which all members have the state: steps, and the end of the run.

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "rendezvous/transport_name.h"
#include "worker/library/session.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::library {

using agent::Activity;
using trainer::Waiting;

namespace {

bool RequiresRdma(const api::TrainingJob& job) {
  const auto& network = job.spec.network;
  return network.rdma && network.rdma->required && network.fallback == "fail";
}

}  // namespace

Result<std::optional<Session::Event>> Session::Start() {
  RM_TRY(ConnectDevices());
  const std::string transport = Transport();
  if (job_.has_value() && RequiresRdma(*job_) && rendezvous::UsesTcp(transport)) {
    fatal_ = fmt::format(
        "spec.network.rdma: RDMA is required, but gradients would travel over {}. Check that a port is "
        "ACTIVE, that "
        "/dev/infiniband is in the pod, and that UCX_TLS and UCX_NET_DEVICES do not exclude it; or set "
        "spec.network.fallback to warn or allow",
        transport);
    return Error{Code::kInvalid, *fatal_};
  }
  if (page_.has_value()) page_->SetStep(step_);
  saver_->BeginGeneration(comm_->rank() == 0, formed_.sources.empty());
  reporter_->StartGeneration(step_, channel_ != nullptr && comm_->rank() == 0, transport);
  sums_->ResetAttempts();
  pause_ = save_due_ = false;
  last_commit_ = Now();
  finished_ = !formed_.stop;
  stage_ = formed_.stop ? Stage::kFinish : Stage::kSteps;
  return std::optional<Event>();
}

// ---- steps

Result<Session::Event> Session::BeginAttempt() {
  Event event = MakeEvent(EventKind::kStep);
  event.first = trainer::FirstMicroBatch(config_.micro_batches, event.world, event.rank);
  event.end = trainer::FirstMicroBatch(config_.micro_batches, event.world, event.rank + 1);
  RM_TRY(sums_->Begin({comm_.get(), device_comm_.get()}, version_, event.first, event.end));
  return event;
}

Result<GradientSums::Reduced> Session::ReduceSums() {
  const Waiting waiting(page_.has_value() ? &*page_ : nullptr, &waited_);
  std::optional<uint64_t> digest;
  for (const trainer::StatePart& part : committed_)
    digest = Hash64(std::as_bytes(std::span(&part.hash, 1)), digest.value_or(0));
  return sums_->Reduce([this] { return channel_ != nullptr && channel_->boundary_wanted(); }, digest);
}

std::vector<trainer::StatePart> Session::StateParts() {
  std::vector<trainer::StatePart> parts = committed_;
  for (const StateArray& array : State()) {
    const StateHashes hashes = HashState({array}, step_, threads_);
    parts.push_back({array.name, array.parameter ? hashes.params : hashes.others});
  }
  return parts;
}

Result<std::string> Session::CompareAcross(const std::vector<trainer::StatePart>& parts) {
  std::vector<std::string> pods;
  for (const rendezvous::Member& member : formed_.members) pods.push_back(member.pod);
  const Waiting waiting(page_.has_value() ? &*page_ : nullptr);
  return trainer::CompareStates(comm_.get(), parts, pods);
}

Status Session::CompareParts(const std::vector<trainer::StatePart>& parts, const std::string& since) {
  const Result<std::string> text = CompareAcross(parts);
  RM_TRY(text);
  if (text->empty()) return Ok();
  diverged_ = fmt::format("the states of step {} differ{}: {}", step_, since, *text);
  return Error{Code::kUnavailable, *diverged_};
}

Result<std::optional<Session::Event>> Session::CompareIfDue(bool at_end) {
  // No checkpoint has a state that the other members do not hold.
  const bool due = at_end || save_due_ || (step_ % kCompareEverySteps == 0 && step_ != formed_.start_step);
  if (comm_->world() == 1 || !due || compared_step_ == step_) return std::optional<Event>();
  if (!described_) return std::optional(MakeEvent(EventKind::kDescribe));
  const int64_t since = std::max(compared_step_, formed_.start_step);
  const std::string equal_until = since < 0 ? "" : fmt::format(", and were equal after step {}", since);
  const StateHashes hashes = Hashes();
  std::vector<trainer::StatePart> parts = committed_;
  parts.push_back({"parameters", hashes.params});
  parts.push_back({"the other arrays", hashes.others});
  const Result<std::string> differ = CompareAcross(parts);
  RM_TRY(differ);
  if (!differ->empty()) {
    RM_TRY(CompareParts(StateParts(), equal_until));  // names the arrays
    return Error{Code::kInternal, "the hashes of equal states differ"};
  }
  compared_step_ = step_;
  compared_state_ = TextOf(hashes);
  return std::optional<Event>();
}

Result<std::optional<Session::Event>> Session::TakeStep() {
  if (const auto& refused = saver_->refused()) {
    if (refused->code == Code::kConflict) fatal_ = refused->message;
    return *refused;
  }
  // All members agreed on the pause, so a checkpoint that is due can come before it.
  if (cancelled() || (pause_ && !save_due_)) {
    reporter_->Flush();
    stage_ = Stage::kOrder;
    return std::optional<Event>();
  }
  RM_ASSIGN(const std::optional<Event> asked, RecordState());
  if (asked) return asked;
  if (step_ >= config_.steps) {
    stage_ = Stage::kFinish;
    return std::optional<Event>();
  }
  // Members that do not end the run compare as well, so all call the same operations.
  RM_ASSIGN(const std::optional<Event> compared, CompareIfDue(false));
  if (compared) return compared;
  if (finish_requested_ && !pause_) return AgreeToFinish();
  if (save_due_) {
    if (!described_) return std::optional(MakeEvent(EventKind::kDescribe));
    save_due_ = false;
    if (comm_->rank() == 0) saver_->SavePeriodic(step_);
    if (pause_) return std::optional<Event>();  // Next continues with the pause
  }
  RM_ASSIGN(Event event, BeginAttempt());
  event.attempt = attempts_++;
  in_step_ = true;
  described_ = false;
  attempt_began_ = Now();
  waited_ = {};
  computed_ = 0;
  return std::optional(event);
}

Status Session::AfterDigests(const Status& written) {
  if (written.ok()) return Ok();
  return FailWith(kExitDevice, written.error().In("digests of the steps").message);
}

Result<std::optional<Session::Event>> Session::RecordState() {
  if (!digests_ || !digests_->WantsState(step_)) return std::optional<Event>();
  if (!described_) return std::optional(MakeEvent(EventKind::kDescribe));
  RM_TRY(AfterDigests(digests_->State(step_, formed_.generation, State())));
  return std::optional<Event>();
}

Result<std::optional<Session::Event>> Session::AgreeToFinish() {
  RM_TRY(BeginAttempt());
  in_step_ = true;  // GenerationFailed ends the attempt
  RM_TRY(sums_->AttemptNothing());
  RM_ASSIGN(const GradientSums::Reduced reduced, ReduceSums());
  in_step_ = false;
  if (reduced.differ) return CommitsDiffer();
  if (reduced.goes_on) return FinishedBySome();
  pause_ = reduced.stop_at_boundary;
  if (!pause_) stage_ = Stage::kFinish;
  return std::optional<Event>();
}

// The program passed different values to the last commit.
Error Session::CommitsDiffer() {
  const Status compared = CompareParts(committed_, "");
  return compared.ok() ? Error{Code::kInternal, "the digests of equal commits differ"} : compared.error();
}

Error Session::FinishedBySome() {
  return Fail(
      fmt::format("the run was finished after step {} by some workers only: all must do so after the same "
                  "step, so decide it by values that are equal on all, such as the loss of the step",
                  step_));
}

void Session::EndAttempt() {
  if (!std::exchange(in_step_, false)) return;
  if (!std::exchange(reduced_, false)) sums_->Abandon();
}

Result<Session::Verdict> Session::Gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  CHECK(in_step_ && computed_ == 0 && all.size() == mine.size() * world());
  std::ranges::copy(mine, all.subspan(mine.size() * static_cast<size_t>(comm_->rank())).begin());
  Status gathered = Ok();
  {
    const Waiting waiting(page_.has_value() ? &*page_ : nullptr, &waited_);
    gathered = comm_->AllGather(all);
  }
  SetActivity(Activity::kComputing);
  return VerdictOf(gathered);
}

Session::Verdict Session::BeginMicroBatch(int v) {
  Heartbeat();
  if (!sums_->BeginMicroBatch(v)) return Verdict::kSkip;
  ++computed_;
  if (digests_) digests_->BeginMicroBatch(step_ + 1, formed_.generation, v);
  return Verdict::kGo;
}

Result<Session::Verdict> Session::Add(int tensor, std::span<const float> values) {
  Heartbeat();
  if (digests_) digests_->Add(tensor, values);
  return VerdictOf(sums_->Add(tensor, values));
}

Result<Session::Verdict> Session::EndMicroBatch(double loss, std::optional<double> weight) {
  Heartbeat();
  if (digests_) RM_TRY(AfterDigests(digests_->EndMicroBatch(loss, weight)));
  return VerdictOf(sums_->EndMicroBatch(loss, weight));
}

Result<Session::Verdict> Session::VerdictOf(const Status& outcome) {
  if (outcome.ok()) return Verdict::kGo;
  RM_TRY(GenerationFailed(outcome.error()));
  return Verdict::kRepeat;
}

Error Session::DeviceFailed(const Error& error) {
  return FailWith(error.code == Code::kGone ? kExitDevice : kExitInternal, error.message);
}

Status Session::Synchronize() {
  const Status done = sums_->Synchronize();
  return done.ok() ? done : DeviceFailed(done.error());
}

Status Session::ReadGradient(int tensor, std::span<float> values) {
  const Status read = sums_->Read(tensor, values);
  // The program may have changed a part of its state, so it cannot attempt the step again.
  return read.ok() ? read : DeviceFailed(read.error());
}

Result<Session::StepResult> Session::Reduce() {
  CHECK(in_step_ && !reduced_);
  if (cancelled()) {
    EndAttempt();
    return StepResult{Verdict::kRepeat, 0, 0};
  }
  const Result<GradientSums::Reduced> reduced = ReduceSums();
  SetActivity(Activity::kComputing);
  if (!reduced.ok()) {
    RM_TRY(GenerationFailed(reduced.error()));
    return StepResult{Verdict::kRepeat, 0, 0};
  }
  if (reduced->differ) {
    RM_TRY(GenerationFailed(CommitsDiffer()));
    return StepResult{Verdict::kRepeat, 0, 0};
  }
  if (reduced->finishes) return FinishedBySome();
  switch (reduced->outcome) {
    case GradientSums::Outcome::kReduced:
      break;
    case GradientSums::Outcome::kRepeat:
      in_step_ = false;
      return StepResult{Verdict::kRepeat, reduced->loss, 0};
    case GradientSums::Outcome::kMixed:
      return Fail(fmt::format(
          "step {}: some micro-batches have a weight and some do not: pass one in all, or in none",
          step_ + 1));
    case GradientSums::Outcome::kNotFinite: {
      const std::string what =
          reduced->culprit.empty() ? "the loss" : fmt::format("the gradient of {}", reduced->culprit);
      return Fail(
          fmt::format("step {}: {} is not finite (loss {}); lower the learning rate or clip the gradient",
                      step_ + 1, what, reduced->loss));
    }
  }
  pause_ = reduced->stop_at_boundary;
  loss_ = reduced->loss;
  reduced_ = true;
  return StepResult{Verdict::kGo, reduced->loss, reduced->norm, reduced->weight};
}

Status Session::Commit(double learning_rate, double gradient_norm) {
  CHECK(reduced_);
  sums_->Commit();
  committed_ = {{"the learning rate of the commit", std::bit_cast<uint64_t>(learning_rate)},
                {"the gradient norm of the commit", std::bit_cast<uint64_t>(gradient_norm)}};
  in_step_ = reduced_ = false;
  described_ = false;
  ++step_;
  ++version_;
  attempts_ = 0;
  const Time now = Now();
  reporter_->Committed({step_, loss_, learning_rate, gradient_norm, config_.samples_per_step,
                        formed_.generation, comm_->world(), ToSeconds(now - last_commit_)});
  last_commit_ = now;
  if (page_.has_value()) {
    page_->SetStep(step_);
    if (computed_ > 0) page_->AddStep(now - attempt_began_ - waited_, computed_);
  }
  saver_->ReportPublished();
  const int64_t every = config_.checkpoint_every_steps.value_or(0);
  save_due_ = !config_.checkpoint_folder.value_or("").empty() && every > 0 && step_ % every == 0 &&
              step_ < config_.steps;
  if (!digests_) return Ok();
  return AfterDigests(digests_->Committed(step_, formed_.generation, loss_, gradient_norm, learning_rate));
}

void Session::Validated(double loss, std::optional<double> accuracy) {
  if (channel_ != nullptr) reporter_->Validated({step_, loss, accuracy});
}

// ---- the end

Result<checkpoint::Snapshot> Session::TakeSnapshot() {
  checkpoint::Snapshot snapshot;
  snapshot.step = step_;
  if (compared_step_ == step_) snapshot.state = compared_state_;
  const std::vector<StateArray> arrays = State();
  snapshot.meta = {{"kind", "program"},
                   {"arrays", DescribeArrays(arrays)},
                   {"tensors", DescribeTensors(config_.tensors)},
                   {"finish", finish_requested_},
                   {"steps", config_.steps},
                   {"records", reporter_->RecordsForCheckpoint()}};
  std::vector<bool> parameters;
  for (const StateArray& array : arrays) {
    snapshot.arrays.push_back({array.name, array.type, array.bytes});
    parameters.push_back(array.parameter);
  }
  snapshot.hash_state = [step = step_, parameters](const std::vector<checkpoint::Array>& copies) {
    std::vector<StateArray> views;
    for (size_t i = 0; i < copies.size(); ++i) {
      const std::span<const std::byte> bytes = copies[i].bytes;
      views.push_back({copies[i].name,
                       copies[i].type,
                       {const_cast<std::byte*>(bytes.data()), bytes.size()},
                       parameters[i]});
    }
    return TextOf(HashState(views, step));
  };
  return snapshot;
}

Result<std::optional<Session::Event>> Session::Finish() {
  if (!described_) return std::optional(MakeEvent(EventKind::kDescribe));
  RM_TRY(RecordState());
  // Any member may send Done, and rank 0 writes the checkpoint.
  RM_ASSIGN(const std::optional<Event> compared, CompareIfDue(true));
  if (compared) return compared;
  if (finish_requested_) reporter_->SetTotalSteps(step_);
  reporter_->Flush();
  rendezvous::Done done;
  done.finished = finished_;
  done.step = step_;
  done.loss = loss_;
  done.validation_loss = std::numeric_limits<double>::quiet_NaN();
  done.saved = !config_.checkpoint_folder.value_or("").empty();
  if (done.saved) RM_TRY(saver_->SaveLast(comm_.get(), &cancelled(), step_, &fatal_));
  const StateHashes hashes = Hashes();
  done.weights_hash = HashHex(hashes.params);
  done.optimizer_hash = HashHex(hashes.others);
  log::Info("step={} loss={} weights={} optimizer={}", step_, loss_, done.weights_hash, done.optimizer_hash);
  if (channel_ == nullptr) {
    stage_ = Stage::kEnded;
    return std::optional<Event>();
  }
  SetActivity(Activity::kWaiting);
  // No member sends Done before the checkpoint exists; afterwards any surviving member can send it.
  RM_TRY(comm_->Barrier());
  reporter_->RepeatAll();
  channel_->Send(done);
  stage_ = Stage::kOrder;
  return std::optional<Event>();
}

}  // namespace ringmaster::library
