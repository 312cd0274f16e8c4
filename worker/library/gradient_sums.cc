// SPDX-License-Identifier: Apache-2.0

#include "worker/library/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/subnormals.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::library {

using engine::kBlock;
using trainer::ScalarExchange;

namespace {

// Elements whose all-reduce starts together: large enough for the bandwidth of a network, small enough to
// overlap with backward.
constexpr int64_t kBucketElements = int64_t{1} << 20;

// What a micro-batch has in place of a weight.
constexpr double kUnweighted = -1;
constexpr double kWithoutGradient = -2;  // it fits steps with and without weights

int64_t Padded(int64_t elements) { return (elements + kBlock - 1) / kBlock * kBlock; }

template <class T>
std::span<float> AsFloats(std::span<T> words) {
  return trainer::SpanOf<float>(std::as_writable_bytes(words));
}

}  // namespace

GradientSums::GradientSums(device::GradientDevice* device, Options options)
    : options_(std::move(options)),
      device_(device),
      quantum_bits_(numerics::QuantumBits(options_.micro_batches)),
      partial_(options_.micro_batches, static_cast<int>(options_.tensors.size())),
      queue_(device) {
  int64_t in_bucket = 0;
  for (size_t i = 0; i < options_.tensors.size(); ++i) {
    const Tensor& tensor = options_.tensors[i];
    layout_.parameters.push_back({tensor.name, {tensor.elements}, layout_.elements, tensor.elements, false});
    layout_.elements += Padded(tensor.elements);
    layout_.trainable += tensor.elements;
    in_bucket += Padded(tensor.elements);
    if (in_bucket >= kBucketElements || i + 1 == options_.tensors.size()) {
      bucket_ends_.push_back(static_cast<int>(i + 1));
      const int64_t begin = layout_.buckets.empty() ? 0 : layout_.buckets.back().end;
      layout_.buckets.push_back({begin, layout_.elements});
      in_bucket = 0;
    }
  }
}

Result<std::unique_ptr<GradientSums>> GradientSums::Create(fabric::Fabric* fabric,
                                                           device::GradientDevice* device, Options options) {
  std::unique_ptr<GradientSums> sums(new GradientSums(device, std::move(options)));
  const int64_t elements = sums->layout_.elements;
  const int64_t blocks = sums->options_.exact ? elements / kBlock : 0;
  RM_ASSIGN(sums->sums_,
            Buffer<int32_t>::Create(fabric, device, elements * sums->options_.limbs, "gradient sums"));
  RM_ASSIGN(sums->norms_, Buffer<double>::Create(fabric, device, sums->tensor_count(), "norms"));
  RM_ASSIGN(const std::span<std::byte> exchange,
            fabric->Allocate(static_cast<size_t>(
                                 ScalarExchange::Words(blocks, int64_t{2} * sums->options_.micro_batches)) *
                                 sizeof(int32_t),
                             "exchange"));
  sums->exchange_ = trainer::SpanOf<int32_t>(exchange);
  if (blocks == 0) return sums;
  RM_ASSIGN(sums->maxima_, Buffer<int32_t>::Create(fabric, device, blocks, "maxima"));
  RM_ASSIGN(sums->attempt_exponents_, Buffer<int32_t>::Create(fabric, device, blocks, "exponents"));
  sums->exponents_.assign(static_cast<size_t>(blocks), numerics::kUnknown);
  sums->next_exponents_ = sums->exponents_;
  sums->ResetAttempts();
  return sums;
}

GradientSums::Buffer<int32_t> GradientSums::SumsOf(int64_t begin, int64_t end) const {
  return sums_.Part(begin * options_.limbs, end * options_.limbs);
}

std::span<int32_t> GradientSums::SumsOf(int tensor) const {
  const engine::Parameter& parameter = ParameterOf(tensor);
  return SumsOf(parameter.offset, parameter.offset + Padded(parameter.size)).device;
}

std::span<float> GradientSums::FloatsOf(int tensor) const {
  return AsFloats(SumsOf(tensor)).first(static_cast<size_t>(Padded(ParameterOf(tensor).size)));
}

std::span<int32_t> GradientSums::BlocksOf(int tensor, std::span<int32_t> by_block) const {
  const engine::Parameter& parameter = ParameterOf(tensor);
  return by_block.subspan(static_cast<size_t>(parameter.offset / kBlock),
                          static_cast<size_t>(Padded(parameter.size) / kBlock));
}

void GradientSums::ResetAttempts() { std::ranges::copy(exponents_, attempt_exponents_.host.begin()); }

void GradientSums::Commit() {
  exponents_ = next_exponents_;
  ResetAttempts();
  ++step_;
}

Status GradientSums::Synchronize() {
  RM_TRY(device_->BindThread());
  return device_->Sync();
}

Status GradientSums::Begin(const trainer::Communicators& comms, uint64_t version, int first, int end) {
  comms_ = comms;
  first_ = first;
  end_ = end;
  current_.reset();
  next_bucket_ = 0;
  finishes_ = false;
  if (!options_.exact) partial_.Forget();  // the terms of a sum of floats must be added in their order
  partial_.Begin(version, {attempt_exponents_.host.begin(), attempt_exponents_.host.end()}, first, end);
  if (!options_.exact) return Ok();
  RM_TRY(device_->BindThread());
  return attempt_exponents_.Upload(device_);
}

bool GradientSums::BeginMicroBatch(int v) {
  CHECK(v >= first_ && v < end_, "micro-batch {} of [{}, {})", v, first_, end_);
  if (partial_.IsComplete(v)) return false;
  current_ = v;
  last_ = true;
  for (int other = first_; other < end_; ++other)
    if (other != v && !partial_.IsComplete(other)) last_ = false;
  return true;
}

Status GradientSums::Add(int tensor, std::span<const float> values) {
  CHECK(current_.has_value() && values.size() == static_cast<size_t>(ParameterOf(tensor).size));
  if (partial_.Contains(*current_, tensor)) return Ok();
  RM_TRY(device_->BindThread());
  RM_TRY(device_->WaitForStream(stream_));
  RM_TRY(Accumulate(tensor, values, partial_.Empty(tensor)));
  RM_TRY(device_->LetStreamWait(stream_));
  partial_.Add(*current_, tensor);
  return last_ ? ReduceReady() : Ok();
}

// A tensor's first term in an attempt sets its maxima, so they need no reset.
Status GradientSums::Accumulate(int tensor, std::span<const float> values, bool overwrite) {
  if (!options_.exact) return device_->Add(values, overwrite, FloatsOf(tensor));
  return device_->Accumulate(values, BlocksOf(tensor, attempt_exponents_.device), quantum_bits_, overwrite,
                             SumsOf(tensor), BlocksOf(tensor, maxima_.device));
}

Status GradientSums::EndMicroBatch(double loss, std::optional<double> weight) {
  CHECK(current_.has_value() && (!weight || (std::isfinite(*weight) && *weight >= 0)));
  const int v = *current_;
  bool gradient = false;
  RM_TRY(device_->BindThread());
  for (int tensor = 0; tensor < tensor_count(); ++tensor) {
    if (partial_.Contains(v, tensor)) {
      gradient = gradient || options_.tensors[static_cast<size_t>(tensor)].in_norm;
      continue;
    }
    if (partial_.Empty(tensor)) RM_TRY(Accumulate(tensor, {}, true));
    partial_.Add(v, tensor);
  }
  partial_.Complete(v, loss, weight.value_or(gradient ? kUnweighted : kWithoutGradient));
  if (last_) RM_TRY(ReduceReady());
  current_.reset();
  return Ok();
}

Status GradientSums::AttemptNothing() {
  finishes_ = true;
  for (int v = first_; v < end_; ++v)
    if (BeginMicroBatch(v)) RM_TRY(EndMicroBatch(0));
  return Ok();
}

bool GradientSums::Complete() const {
  for (int v = first_; v < end_; ++v)
    if (!partial_.IsComplete(v)) return false;
  return true;
}

Status GradientSums::ReduceReady() {
  if (comms_.host->world() == 1) return Ok();
  while (next_bucket_ < bucket_ends_.size()) {
    const int begin = next_bucket_ == 0 ? 0 : bucket_ends_[next_bucket_ - 1];
    for (int tensor = begin; tensor < bucket_ends_[next_bucket_]; ++tensor)
      if (current_.has_value() && !partial_.Contains(*current_, tensor)) return Ok();
    partial_.Reduce();
    reducing_ = true;
    const engine::Bucket& bucket = layout_.buckets[next_bucket_++];
    const Buffer<int32_t> sums = SumsOf(bucket.begin, bucket.end);
    RM_TRY(options_.exact ? queue_.Add(comms_, sums)
                          : queue_.Add(comms_, Buffer<float>{AsFloats(sums.host), AsFloats(sums.device)}));
  }
  return Ok();
}

Status GradientSums::Drain() {
  if (!std::exchange(reducing_, false)) return Ok();
  const Status reduced = queue_.Drain();
  const Status finished = comms_.device == nullptr ? Ok() : comms_.device->Finish();
  RM_TRY(reduced);
  return finished;
}

// The device must not use memory that changes afterwards, such as the exponents. A device that fails here
// does so again in the next attempt.
void GradientSums::Abandon() {
  (void)device_->BindThread();
  (void)Drain();
  (void)device_->Sync();
  current_.reset();
  comms_ = {};
}

Result<GradientSums::Reduced> GradientSums::Reduce(const std::function<bool()>& wants_to_stop,
                                                   std::optional<uint64_t> digest) {
  CHECK(comms_.host != nullptr && Complete());
  current_.reset();
  RM_TRY(device_->BindThread());
  // A worker whose share is empty adds zero.
  for (int tensor = 0; tensor < tensor_count(); ++tensor)
    if (partial_.Empty(tensor)) RM_TRY(Accumulate(tensor, {}, true));
  RM_TRY(ReduceReady());
  RM_TRY(Drain());
  RM_TRY(maxima_.Download(device_));
  RM_TRY(device_->Sync());

  const auto blocks = static_cast<int64_t>(maxima_.host.size());
  ScalarExchange exchange(exchange_, blocks, int64_t{2} * options_.micro_batches);
  exchange.Clear(numerics::kZero);
  std::ranges::copy(maxima_.host, exchange.maxima().begin());
  for (int v = first_; v < end_; ++v) {
    exchange.PutDouble(v, partial_.loss(v));
    exchange.PutDouble(options_.micro_batches + v, partial_.weight(v));
  }
  exchange.Cast(finishes_ ? ScalarExchange::kFinishes : ScalarExchange::kGoesOn);
  if (wants_to_stop()) exchange.Cast(ScalarExchange::kStopAtBoundary);
  if (digest) exchange.PutDigest(*digest);
  RM_TRY(exchange.Exchange(comms_.host));
  comms_ = {};

  Reduced reduced;
  reduced.stop_at_boundary = exchange.Voted(ScalarExchange::kStopAtBoundary);
  reduced.finishes = exchange.Voted(ScalarExchange::kFinishes);
  reduced.goes_on = exchange.Voted(ScalarExchange::kGoesOn);
  reduced.differ = !exchange.DigestsAgree();
  if (reduced.finishes || reduced.differ) {
    partial_.Forget();  // the sums hold no step
    return reduced;
  }
  std::vector<double> losses(static_cast<size_t>(options_.micro_batches));
  for (size_t v = 0; v < losses.size(); ++v) losses[v] = exchange.GetDouble(static_cast<int64_t>(v));
  if (!SumWeights(exchange)) {
    reduced.outcome = Outcome::kMixed;
    return reduced;
  }
  reduced.weight = divisor_;
  const auto mean = [&](double sum) { return divisor_ > 0 ? sum / divisor_ : 0; };
  reduced.loss = mean(numerics::OrderedSum(losses));
  if (options_.exact) {
    if (numerics::NotFinite(exchange.maxima())) {
      reduced.outcome = Outcome::kNotFinite;
      reduced.culprit = FirstNotFinite(exchange.maxima());
      return reduced;
    }
    if (numerics::Overflowed(exchange.maxima(), attempt_exponents_.host)) {
      numerics::ExponentsForRedo(exchange.maxima(), attempt_exponents_.host);
      reduced.outcome = Outcome::kRepeat;
      return reduced;
    }
    next_exponents_.assign(attempt_exponents_.host.begin(), attempt_exponents_.host.end());
    numerics::ExponentsForNext(layout_, exchange.maxima(), step_ + 1, next_exponents_);
  }
  partial_.Forget();  // exact sums become the mean as floats, the others stay sums
  for (int tensor = 0; tensor < tensor_count(); ++tensor) {
    const auto index = static_cast<size_t>(tensor);
    if (options_.exact) {
      RM_TRY(device_->Decode(SumsOf(tensor), BlocksOf(tensor, attempt_exponents_.device), quantum_bits_,
                             DivisorOf(tensor) > 0 ? 1.0 / DivisorOf(tensor) : 0, FloatsOf(tensor)));
    }
    if (options_.tensors[index].in_norm)
      RM_TRY(device_->Norm(FloatsOf(tensor), norms_.device.subspan(index, 1)));
  }
  RM_TRY(norms_.Download(device_));
  RM_TRY(device_->Sync());
  double squares = 0;
  for (size_t i = 0; i < options_.tensors.size(); ++i)
    if (options_.tensors[i].in_norm) squares += norms_.host[i] * norms_.host[i];
  reduced.norm = options_.exact ? std::sqrt(squares) : mean(std::sqrt(squares));
  if (!std::isfinite(reduced.norm) || !std::isfinite(reduced.loss)) reduced.outcome = Outcome::kNotFinite;
  return reduced;
}

bool GradientSums::SumWeights(const ScalarExchange& exchange) {
  std::vector<double> weights;
  bool unweighted = false;
  for (int64_t v = 0; v < options_.micro_batches; ++v) {
    const double weight = exchange.GetDouble(options_.micro_batches + v);
    unweighted = unweighted || weight == kUnweighted;
    if (weight >= 0) weights.push_back(weight);
  }
  divisor_ = weights.empty() ? options_.micro_batches : numerics::OrderedSum(weights);
  return weights.empty() || !unweighted;
}

std::string GradientSums::FirstNotFinite(std::span<const int32_t> maxima) const {
  for (const engine::Parameter& parameter : layout_.parameters) {
    const auto first = static_cast<size_t>(parameter.offset / kBlock);
    const auto blocks = static_cast<size_t>(Padded(parameter.size) / kBlock);
    if (std::ranges::find(maxima.subspan(first, blocks), numerics::kNotFinite) !=
        maxima.subspan(first, blocks).end())
      return parameter.name;
  }
  return {};
}

Status GradientSums::Read(int tensor, std::span<float> values) {
  RM_TRY(device_->BindThread());
  RM_TRY(device_->WaitForStream(stream_));  // it may use the memory that is written
  const std::span<const float> from = FloatsOf(tensor).first(values.size());
  if (options_.exact) {
    RM_TRY(device_->Copy(std::as_bytes(from), std::as_writable_bytes(values)));
  } else {
    const KeepSubnormals keep;
    const double divisor = DivisorOf(tensor);
    RM_TRY(device_->Scale(from, divisor > 0 ? static_cast<float>(1.0 / divisor) : 0, values));
  }
  return device_->LetStreamWait(stream_);
}

}  // namespace ringmaster::library
