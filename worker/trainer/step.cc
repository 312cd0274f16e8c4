// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/hash.h"
#include "worker/compute/numerics/exact.h"
#include "worker/compute/optimizer/optimizer.h"
#include "worker/trainer/waiting.h"

namespace ringmaster::trainer {
namespace {

using engine::Bucket;
using engine::kBlock;

// Keeps the first error of several operations.
void KeepFirst(Status* status, const Status& next) {
  if (status->ok()) *status = next;
}

}  // namespace

Stepper::Stepper(const Parts& parts)
    : parts_(parts),
      layout_(parts.model->layout()),
      quantum_bits_(numerics::QuantumBits(parts.config->micro_batches)),
      limbs_(parts.config->wide_sums ? numerics::kMaxLimbs : 1),
      reader_(*parts.dataset,
              {.seed = parts.config->seed, .max_samples = parts.config->SamplesPerMicroBatch()}),
      queue_(parts.device),
      partial_(parts.config->micro_batches, static_cast<int>(layout_.buckets.size())) {}

Result<std::unique_ptr<Stepper>> Stepper::Create(const Parts& parts) {
  std::unique_ptr<Stepper> stepper(new Stepper(parts));
  fabric::Fabric* const fabric = parts.fabric;
  const int64_t elements = stepper->layout_.elements;
  const int64_t blocks = parts.config->exact ? elements / kBlock : 0;
  RM_ASSIGN(const std::span<std::byte> gradients,
            parts.device->Allocate(static_cast<size_t>(elements) * sizeof(float), "gradients"));
  stepper->gradients_ = SpanOf<float>(gradients);
  RM_ASSIGN(stepper->sums_, HostDeviceBuffer<int32_t>::Create(fabric, parts.device,
                                                              elements * stepper->limbs_, "gradient sums"));
  stepper->float_sums_ = {SpanOf<float>(std::as_writable_bytes(stepper->sums_.host)),
                          SpanOf<float>(std::as_writable_bytes(stepper->sums_.device))};
  RM_ASSIGN(stepper->exchange_, HostDeviceBuffer<int32_t>::Create(
                                    fabric, parts.device,
                                    ScalarExchange::Words(blocks, parts.config->micro_batches), "exchange"));
  stepper->maxima_ = stepper->exchange_.Part(ScalarExchange::kHead, ScalarExchange::kHead + blocks);
  if (blocks > 0) {
    RM_ASSIGN(stepper->exponents_,
              HostDeviceBuffer<int32_t>::Create(fabric, parts.device, blocks, "exponents"));
  }
  RM_ASSIGN(stepper->contributors_, HostDeviceBuffer<int32_t>::Create(fabric, parts.device, 1, "members"));
  RM_ASSIGN(stepper->norm_, HostDeviceBuffer<double>::Create(fabric, parts.device, 1, "norm"));
  return stepper;
}

Result<StepResult> Stepper::Run(const Communicators& comms, const std::atomic<bool>* cancel,
                                const std::function<bool()>& wants_to_stop, JoinTransfer* join) {
  const RunConfig& config = *parts_.config;
  TrainState& state = *parts_.state;
  const Time began = Now();
  waited_ = {};
  join_ = join != nullptr && !join->done() ? join : nullptr;
  owners_ = join_ != nullptr ? join_->owners() : comms.host->world();
  owner_ = join_ != nullptr ? join_->owner() : comms.host->rank();
  first_ = owner_ < 0 ? 0 : FirstMicroBatch(config.micro_batches, owners_, owner_);
  end_ = owner_ < 0 ? 0 : FirstMicroBatch(config.micro_batches, owners_, owner_ + 1);
  const int64_t epoch_size = parts_.dataset->size(data::Split::kTrain);
  const data::StepSamples samples =
      data::NextStep(state.current().cursor, config.samples_per_step, epoch_size);
  const std::span<int32_t> exponents = exponents_.host;
  std::ranges::copy(state.current().exponents, exponents.begin());

  ScalarExchange exchange(exchange_.host, static_cast<int64_t>(exponents.size()), config.micro_batches);
  digest_.reset();
  if (comms.host->world() > 1 && state.present()) {
    RM_ASSIGN(const TrainState::Hashes hashes, state.StateHashes());
    digest_ = Hash64(std::as_bytes(std::span(&hashes, 1)));
  }
  Status queued = join_ != nullptr ? join_->Enqueue(comms, &queue_, false) : Ok();
  while (true) {
    exchange.Clear(numerics::kZero);
    const Status attempted = AttemptStep(comms, samples, cancel, wants_to_stop, &exchange);
    RM_TRY(std::exchange(queued, Ok()));
    RM_TRY(attempted);
    if (!exchange.DigestsAgree()) {
      StepResult differ;
      differ.states_differ = true;
      return differ;
    }
    if (!overflowed_ || !finite_) break;
    // Some block exceeded its exponent (in the first step, every block). Take exponents that fit the maxima
    // and repeat the step.
    numerics::ExponentsForRedo(exchange.maxima(), exponents);
  }

  if (join_ != nullptr) {
    RM_TRY(join_->Advance());
    join_->Agree(exchange.Number(ScalarExchange::kJoinPieces));
  }

  std::vector<double> losses(static_cast<size_t>(config.micro_batches));
  for (size_t v = 0; v < losses.size(); ++v) losses[v] = exchange.GetDouble(static_cast<int64_t>(v));
  StepResult result;
  result.samples = samples.count;
  result.loss = numerics::OrderedSum(losses) / static_cast<double>(samples.count);
  result.learning_rate = config.schedule.At(state.step() + 1);
  result.stop_at_boundary = exchange.Voted(ScalarExchange::kStopAtBoundary);
  result.gradient_norm = norm_.host[0];

  if (!finite_ || !std::isfinite(result.gradient_norm) || !std::isfinite(result.loss)) {
    return Error{Code::kInvalid, fmt::format("step {}: the gradient is not finite (loss {}); lower "
                                             "spec.training.optimizer.learningRate or set clipNorm",
                                             state.step() + 1, result.loss)};
  }
  std::ranges::copy(next_exponents_, state.next().exponents.begin());
  state.next().loss = result.loss;
  state.next().cursor = data::Advance(state.current().cursor, samples, epoch_size);
  state.Commit();
  result.busy = Now() - began - waited_;
  result.micro_batches = end_ - first_;
  // A member that computes nothing yet, because it has not all of the state, cannot be compared with others.
  if (parts_.page != nullptr && end_ > first_) parts_.page->AddStep(result.busy, result.micro_batches);
  return result;
}

Status Stepper::FinishJoin(const Communicators& comms, JoinTransfer* join) {
  Status status = join->Enqueue(comms, &queue_, true);
  {
    const Waiting waiting(parts_.page);
    KeepFirst(&status, queue_.Drain());
  }
  KeepFirst(&status, parts_.device->Sync());
  RM_TRY(status);
  return join->Advance();
}

Status Stepper::AttemptStep(const Communicators& comms, const data::StepSamples& samples,
                            const std::atomic<bool>* cancel, const std::function<bool()>& wants_to_stop,
                            ScalarExchange* exchange) {
  TrainState& state = *parts_.state;
  const bool undo = state.can_roll_back();
  const bool through_host = comms.device == nullptr && comms.host->world() > 1;
  contributors_.host[0] = comms.device == nullptr ? comms.host->world() : 1;
  RM_TRY(KeepPartialSums());
  Status status = through_host ? ExchangeThenUpdate(comms, samples, cancel, wants_to_stop, exchange)
                               : UpdateThenExchange(comms, samples, cancel, wants_to_stop, exchange);
  if (comms.device != nullptr) {
    const Waiting waiting(parts_.page, &waited_);
    KeepFirst(&status, comms.device->Finish());
  }
  {
    const Waiting waiting(parts_.page, agent::Activity::kDevice);
    RM_TRY(parts_.device->Sync());
  }
  if (undo && contributors_.host[0] != comms.host->world()) state.RestoreUndo();
  if (!status.ok() && !RecordPartialSums().ok()) partial_.Forget();
  return status;
}

// Both orders wait for everything they have started even after a failure: no operation may be in flight when
// the memory is used again.

Status Stepper::UpdateThenExchange(const Communicators& comms, const data::StepSamples& samples,
                                   const std::atomic<bool>* cancel,
                                   const std::function<bool()>& wants_to_stop, ScalarExchange* exchange) {
  Status status = EnqueueGradients(comms, samples, cancel);
  {
    const Waiting waiting(parts_.page, &waited_);
    KeepFirst(&status, queue_.Drain());
  }
  if (status.ok()) status = EnqueueUpdate(comms, samples);
  KeepFirst(&status, CollectLosses(exchange));
  {
    const Waiting waiting(parts_.page, &waited_);
    if (status.ok()) status = Exchange(comms, wants_to_stop, exchange);
  }
  if (status.ok() && parts_.config->exact) CheckExponents(exchange);
  return status;
}

Status Stepper::ExchangeThenUpdate(const Communicators& comms, const data::StepSamples& samples,
                                   const std::atomic<bool>* cancel,
                                   const std::function<bool()>& wants_to_stop, ScalarExchange* exchange) {
  Status status = EnqueueGradients(comms, samples, cancel);
  KeepFirst(&status, CollectLosses(exchange));
  {
    const Waiting waiting(parts_.page, &waited_);
    KeepFirst(&status, queue_.Drain());
    if (status.ok()) status = Exchange(comms, wants_to_stop, exchange);
  }
  if (status.ok() && parts_.config->exact) CheckExponents(exchange);
  if (status.ok() && !overflowed_ && finite_) status = EnqueueUpdate(comms, samples);
  return status;
}

Status Stepper::Exchange(const Communicators& comms, const std::function<bool()>& wants_to_stop,
                         ScalarExchange* exchange) {
  if (wants_to_stop()) exchange->Cast(ScalarExchange::kStopAtBoundary);
  if (digest_) exchange->PutDigest(*digest_);
  if (join_ != nullptr) exchange->Cast(ScalarExchange::kJoinPieces, join_->Propose());
  return exchange->Exchange(comms.host);
}

void Stepper::CheckExponents(ScalarExchange* exchange) {
  overflowed_ = numerics::Overflowed(exchange->maxima(), exponents_.host);
  finite_ = !numerics::NotFinite(exchange->maxima());
  next_exponents_.assign(exponents_.host.begin(), exponents_.host.end());
  if (!overflowed_ && finite_)
    numerics::ExponentsForNext(layout_, exchange->maxima(), parts_.state->step() + 1, next_exponents_);
}

Status Stepper::CollectLosses(ScalarExchange* exchange) {
  const Waiting waiting(parts_.page, agent::Activity::kDevice);
  const Status reached = parts_.device->WaitForSyncPoint();
  RM_ASSIGN(const std::vector<engine::Sums> sums, parts_.model->Await());  // even after a failure
  RM_TRY(reached);
  for (size_t i = 0; i < sums.size(); ++i)
    if (enqueued_[i] != kNone) partial_.Complete(enqueued_[i], sums[i].loss);
  for (int v = first_; v < end_; ++v)
    if (partial_.IsComplete(v)) exchange->PutDouble(v, partial_.loss(v));
  return Ok();
}

Status Stepper::KeepPartialSums() {
  enqueued_.clear();
  const std::vector<int32_t> exponents(exponents_.host.begin(), exponents_.host.end());
  if (!partial_.Begin(parts_.state->version(), exponents, first_, end_)) return Ok();
  std::ranges::copy(partial_maxima_, maxima_.host.begin());
  return maxima_.Upload(parts_.device);
}

Status Stepper::RecordPartialSums() {
  // The terms of a sum of floats must be added in their order.
  if (!parts_.config->exact) {
    partial_.Forget();
    return Ok();
  }
  RM_TRY(maxima_.Download(parts_.device));
  RM_TRY(parts_.device->Sync());
  partial_maxima_.assign(maxima_.host.begin(), maxima_.host.end());
  return Ok();
}

Status Stepper::EnqueueUpdate(const Communicators& comms, const data::StepSamples& samples) {
  RM_TRY(DecodeGradient(1.0 / static_cast<double>(samples.count)));
  RM_TRY(parts_.device->Norm(gradients_, norm_.device));
  parts_.state->InvalidateUndo();
  RM_TRY(Update(comms));
  RM_TRY(norm_.Download(parts_.device));
  return contributors_.Download(parts_.device);
}

Status Stepper::EnqueueGradients(const Communicators& comms, const data::StepSamples& samples,
                                 const std::atomic<bool>* cancel) {
  const RunConfig& config = *parts_.config;
  RM_TRY(exponents_.Upload(parts_.device));
  RM_TRY(contributors_.Upload(parts_.device));
  int left = 0;
  for (int v = first_; v < end_; ++v) left += partial_.IsComplete(v) ? 0 : 1;
  if (left == 0) {
    // The gradient of no samples is zero: this rank takes part in the sums and adds nothing.
    RM_TRY(EnqueueMicroBatch(comms, engine::Batch{}, kNone, true, cancel));
  } else {
    ReadFrom(samples, first_, end_);
    for (int v = first_; v < end_; ++v) {
      RM_ASSIGN(const engine::Batch batch, reader_.Next(cancel, parts_.page));
      if (partial_.IsComplete(v)) continue;
      RM_TRY(EnqueueMicroBatch(comms, batch, v, --left == 0, cancel));
    }
    const int64_t epoch_size = parts_.dataset->size(data::Split::kTrain);
    const data::Cursor cursor = data::Advance({samples.epoch, samples.position}, samples, epoch_size);
    if (--reader_steps_ > 0)
      reader_position_ = {data::NextStep(cursor, config.samples_per_step, epoch_size), first_, end_};
  }
  if (comms.device != nullptr && comms.host->world() > 1) RM_TRY(queue_.Add(comms, contributors_));
  RM_TRY(maxima_.Download(parts_.device));
  return parts_.device->RecordSyncPoint();
}

void Stepper::ReadFrom(const data::StepSamples& samples, int first, int end) {
  if (std::exchange(reader_position_, std::nullopt) == ReaderPosition{samples, first, end}) return;
  const RunConfig& config = *parts_.config;
  reader_steps_ = std::max(config.steps - parts_.state->step(), int64_t{1});
  reader_.Start(TrainingWindows({.samples_per_step = config.samples_per_step,
                                 .micro_batches = config.micro_batches,
                                 .epoch_size = parts_.dataset->size(data::Split::kTrain),
                                 .steps = reader_steps_,
                                 .samples = samples,
                                 .first = first,
                                 .end = end}));
}

Status Stepper::EnqueueMicroBatch(const Communicators& comms, const engine::Batch& batch, int micro_batch,
                                  bool last, const std::atomic<bool>* cancel) {
  Status taken;
  const auto take = [&](int bucket) {
    if (taken.ok()) taken = EnqueueBucket(comms, bucket, micro_batch, last);
  };
  RM_TRY(parts_.model->Enqueue({parts_.state->current().params, parts_.state->version()}, batch, gradients_,
                               take, cancel));
  enqueued_.push_back(micro_batch);
  return taken;
}

Status Stepper::EnqueueBucket(const Communicators& comms, int bucket_index, int micro_batch, bool last) {
  const Bucket& bucket = layout_.buckets[static_cast<size_t>(bucket_index)];
  const std::span<const float> gradient =
      gradients_.subspan(static_cast<size_t>(bucket.begin), static_cast<size_t>(bucket.end - bucket.begin));
  const bool overwrite = partial_.Empty(bucket_index);
  const bool add = micro_batch == kNone ? overwrite : !partial_.Contains(micro_batch, bucket_index);
  const bool exchange = last && comms.host->world() > 1;
  if (exchange) partial_.Reduce();
  if (parts_.config->exact) {
    const int64_t first_block = bucket.begin / kBlock;
    const int64_t end_block = bucket.end / kBlock;
    const HostDeviceBuffer<int32_t> sums = sums_.Part(bucket.begin * limbs_, bucket.end * limbs_);
    if (add) {
      RM_TRY(parts_.device->Accumulate(gradient, exponents_.Part(first_block, end_block).device,
                                       quantum_bits_, overwrite, sums.device,
                                       maxima_.Part(first_block, end_block).device));
    }
    if (add && micro_batch != kNone) partial_.Add(micro_batch, bucket_index);
    return exchange ? queue_.Add(comms, sums) : Ok();
  }
  const HostDeviceBuffer<float> sums = float_sums_.Part(bucket.begin, bucket.end);
  if (add) RM_TRY(parts_.device->Add(gradient, overwrite, sums.device));
  if (add && micro_batch != kNone) partial_.Add(micro_batch, bucket_index);
  return exchange ? queue_.Add(comms, sums) : Ok();
}

Status Stepper::DecodeGradient(double scale) {
  if (parts_.config->exact) {
    return parts_.device->Decode(sums_.device, exponents_.device, quantum_bits_, scale, gradients_);
  }
  return parts_.device->Scale(float_sums_.device, static_cast<float>(scale), gradients_);
}

Status Stepper::Update(const Communicators& comms) {
  const TrainState::Image& current = parts_.state->current();
  const TrainState::Image& next = parts_.state->next();
  const optimizer::Config& config = parts_.config->optimizer;
  const int64_t step = parts_.state->step() + 1;
  return parts_.device->Update(
      config, {.step = step, .learning_rate = parts_.config->schedule.At(step)}, layout_,
      {gradients_, current.params, current.state0, current.state1, next.params, next.state0, next.state1},
      {.norm = norm_.device,
       .contributors = contributors_.device,
       .required_contributors = comms.host->world()},
      parts_.state->next_hashes());
}

}  // namespace ringmaster::trainer
