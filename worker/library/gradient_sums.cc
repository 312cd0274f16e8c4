// SPDX-License-Identifier: Apache-2.0

#include "worker/library/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/subnormals.h"
#include "worker/compute/numerics/exact.h"
#include "worker/trainer/scalar_exchange.h"

namespace ringmaster::library {

using engine::kBlock;
using trainer::ScalarExchange;

namespace {

// Elements whose all-reduce starts together: large enough for the bandwidth of a network, small enough to
// overlap with backward.
constexpr int64_t kBucketElements = int64_t{1} << 20;

int64_t Padded(int64_t elements) { return (elements + kBlock - 1) / kBlock * kBlock; }

template <class T>
std::span<T> Cast(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

GradientSums::GradientSums(Options options)
    : options_(std::move(options)),
      quantum_bits_(numerics::QuantumBits(options_.micro_batches)),
      block_(kBlock),
      decoded_(kBlock),
      partial_(options_.micro_batches, static_cast<int>(options_.tensors.size())) {
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

Result<std::unique_ptr<GradientSums>> GradientSums::Create(fabric::Fabric* fabric, Options options) {
  std::unique_ptr<GradientSums> sums(new GradientSums(std::move(options)));
  const int64_t elements = sums->layout_.elements;
  const int64_t blocks = sums->options_.exact ? elements / kBlock : 0;
  RM_ASSIGN(const std::span<std::byte> memory,
            fabric->Allocate(static_cast<size_t>(elements * sums->options_.limbs) * sizeof(int32_t),
                             "gradient sums"));
  sums->sums_ = Cast<int32_t>(memory);
  RM_ASSIGN(
      const std::span<std::byte> exchange,
      fabric->Allocate(
          static_cast<size_t>(ScalarExchange::Words(blocks, sums->options_.micro_batches)) * sizeof(int32_t),
          "exchange"));
  sums->exchange_ = Cast<int32_t>(exchange);
  sums->maxima_.assign(static_cast<size_t>(blocks), numerics::kZero);
  sums->exponents_.assign(static_cast<size_t>(blocks), numerics::kUnknown);
  sums->attempt_exponents_ = sums->next_exponents_ = sums->exponents_;
  return sums;
}

std::span<int32_t> GradientSums::SumsOf(int tensor) const {
  const engine::Parameter& parameter = ParameterOf(tensor);
  return sums_.subspan(static_cast<size_t>(parameter.offset * options_.limbs),
                       static_cast<size_t>(Padded(parameter.size) * options_.limbs));
}

std::span<float> GradientSums::FloatsOf(int tensor) const {
  return Cast<float>(std::as_writable_bytes(SumsOf(tensor)));
}

void GradientSums::ResetAttempts() { attempt_exponents_ = exponents_; }

void GradientSums::Commit() {
  exponents_ = attempt_exponents_ = next_exponents_;
  ++step_;
}

void GradientSums::Begin(fabric::Communicator* comm, uint64_t version, int first, int end) {
  comm_ = comm;
  first_ = first;
  end_ = end;
  current_.reset();
  next_bucket_ = 0;
  finishes_ = false;
  if (!options_.exact) partial_.Forget();  // the terms of a sum of floats must be added in their order
  if (!partial_.Begin(version, attempt_exponents_, first, end)) std::ranges::fill(maxima_, numerics::kZero);
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

void GradientSums::Add(int tensor, std::span<const float> values) {
  CHECK(current_.has_value() && values.size() == static_cast<size_t>(ParameterOf(tensor).size));
  if (partial_.Contains(*current_, tensor)) return;
  const bool overwrite = partial_.Empty(tensor);
  if (options_.exact) {
    AddExact(tensor, values, overwrite);
  } else {
    const std::span<float> sums = FloatsOf(tensor);
    if (overwrite) {
      std::ranges::copy(values, sums.begin());
      std::fill(sums.begin() + static_cast<ptrdiff_t>(values.size()), sums.end(), 0.0f);
    } else {
      for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
    }
  }
  partial_.Add(*current_, tensor);
  if (last_) ReduceReady();
}

void GradientSums::AddExact(int tensor, std::span<const float> values, bool overwrite) {
  const KeepSubnormals keep;
  const engine::Parameter& parameter = ParameterOf(tensor);
  const std::span<int32_t> sums = SumsOf(tensor);
  const auto first_block = static_cast<size_t>(parameter.offset / kBlock);
  const auto block = static_cast<size_t>(kBlock);
  const size_t whole = values.size() / block;
  const auto limbs = static_cast<size_t>(options_.limbs);
  const std::span<const int32_t> exponents(attempt_exponents_);
  const std::span<int32_t> maxima(maxima_);
  if (whole > 0) {
    numerics::Accumulate(values.first(whole * block), exponents.subspan(first_block, whole), quantum_bits_,
                         overwrite, sums.first(whole * block * limbs), maxima.subspan(first_block, whole));
  }
  const std::span<const float> tail = values.subspan(whole * block);
  if (tail.empty()) return;
  std::ranges::copy(tail, block_.begin());
  std::fill(block_.begin() + static_cast<ptrdiff_t>(tail.size()), block_.end(), 0.0f);
  numerics::Accumulate(block_, exponents.subspan(first_block + whole, 1), quantum_bits_, overwrite,
                       sums.subspan(whole * block * limbs), maxima.subspan(first_block + whole, 1));
}

void GradientSums::FillZero(int tensor) { std::ranges::fill(SumsOf(tensor), 0); }

void GradientSums::EndMicroBatch(double loss) {
  CHECK(current_.has_value());
  const int v = *current_;
  for (int tensor = 0; tensor < static_cast<int>(options_.tensors.size()); ++tensor) {
    if (partial_.Contains(v, tensor)) continue;
    if (partial_.Empty(tensor)) FillZero(tensor);
    partial_.Add(v, tensor);
  }
  partial_.Complete(v, loss);
  if (last_) ReduceReady();
  current_.reset();
}

void GradientSums::AttemptNothing() {
  finishes_ = true;
  for (int v = first_; v < end_; ++v)
    if (BeginMicroBatch(v)) EndMicroBatch(0);
}

bool GradientSums::Complete() const {
  for (int v = first_; v < end_; ++v)
    if (!partial_.IsComplete(v)) return false;
  return true;
}

void GradientSums::ReduceReady() {
  if (comm_->world() == 1) return;
  while (next_bucket_ < bucket_ends_.size()) {
    const int begin = next_bucket_ == 0 ? 0 : bucket_ends_[next_bucket_ - 1];
    for (int tensor = begin; tensor < bucket_ends_[next_bucket_]; ++tensor)
      if (current_.has_value() && !partial_.Contains(*current_, tensor)) return;
    partial_.Reduce();
    const engine::Bucket& bucket = layout_.buckets[next_bucket_++];
    const std::span<int32_t> sums =
        sums_.subspan(static_cast<size_t>(bucket.begin * options_.limbs),
                      static_cast<size_t>((bucket.end - bucket.begin) * options_.limbs));
    if (options_.exact) {
      background_.Add(comm_, sums);
    } else {
      background_.Add(comm_, Cast<float>(std::as_writable_bytes(sums)));
    }
  }
}

void GradientSums::Abandon() {
  (void)background_.Drain();
  current_.reset();
  comm_ = nullptr;
}

Result<GradientSums::Reduced> GradientSums::Reduce(const std::function<bool()>& wants_to_stop) {
  CHECK(comm_ != nullptr && Complete());
  current_.reset();
  // A worker whose share is empty adds zero.
  for (int tensor = 0; tensor < static_cast<int>(options_.tensors.size()); ++tensor)
    if (partial_.Empty(tensor)) FillZero(tensor);
  ReduceReady();
  RM_TRY(background_.Drain());

  const auto blocks = static_cast<int64_t>(maxima_.size());
  ScalarExchange exchange(exchange_, blocks, options_.micro_batches);
  exchange.Clear(numerics::kZero);
  std::ranges::copy(maxima_, exchange.maxima().begin());
  for (int v = first_; v < end_; ++v) exchange.PutDouble(v, partial_.loss(v));
  exchange.Cast(finishes_ ? ScalarExchange::kFinishes : ScalarExchange::kGoesOn);
  if (wants_to_stop()) exchange.Cast(ScalarExchange::kStopAtBoundary);
  RM_TRY(exchange.Exchange(comm_));
  comm_ = nullptr;

  Reduced reduced;
  reduced.stop_at_boundary = exchange.Voted(ScalarExchange::kStopAtBoundary);
  reduced.finishes = exchange.Voted(ScalarExchange::kFinishes);
  reduced.goes_on = exchange.Voted(ScalarExchange::kGoesOn);
  if (reduced.finishes) {
    partial_.Forget();  // the sums hold no step
    return reduced;
  }
  std::vector<double> losses(static_cast<size_t>(options_.micro_batches));
  for (size_t v = 0; v < losses.size(); ++v) losses[v] = exchange.GetDouble(static_cast<int64_t>(v));
  reduced.loss = numerics::OrderedSum(losses) / options_.micro_batches;
  if (options_.exact) {
    if (numerics::NotFinite(exchange.maxima())) {
      reduced.outcome = Outcome::kNotFinite;
      reduced.culprit = FirstNotFinite(exchange.maxima());
      return reduced;
    }
    if (numerics::Overflowed(exchange.maxima(), attempt_exponents_)) {
      numerics::ExponentsForRedo(exchange.maxima(), attempt_exponents_);
      reduced.outcome = Outcome::kRepeat;
      return reduced;
    }
    next_exponents_ = attempt_exponents_;
    numerics::ExponentsForNext(layout_, exchange.maxima(), step_ + 1, next_exponents_);
  }
  partial_.Forget();  // the sums become floats
  const KeepSubnormals keep;
  for (int tensor = 0; tensor < static_cast<int>(options_.tensors.size()); ++tensor) DecodeInPlace(tensor);
  reduced.norm = Norm();
  if (!std::isfinite(reduced.norm) || !std::isfinite(reduced.loss)) reduced.outcome = Outcome::kNotFinite;
  return reduced;
}

void GradientSums::DecodeInPlace(int tensor) {
  const double scale = 1.0 / options_.micro_batches;
  const std::span<float> floats = FloatsOf(tensor);
  if (!options_.exact) {
    for (float& value : floats) value = static_cast<float>(value * scale);
    return;
  }
  const engine::Parameter& parameter = ParameterOf(tensor);
  const std::span<const int32_t> sums = SumsOf(tensor);
  const auto block = static_cast<size_t>(kBlock);
  const auto limbs = static_cast<size_t>(options_.limbs);
  const auto first_block = static_cast<size_t>(parameter.offset / kBlock);
  // Block i is written at or before the place where it is read, so a copy of one block suffices.
  for (size_t i = 0; i * block * limbs < sums.size(); ++i) {
    numerics::Decode(sums.subspan(i * block * limbs, block * limbs),
                     std::span<const int32_t>(attempt_exponents_).subspan(first_block + i, 1), quantum_bits_,
                     scale, decoded_);
    std::ranges::copy(decoded_, floats.begin() + static_cast<ptrdiff_t>(i * block));
  }
}

double GradientSums::Norm() const {
  double squares = 0;
  for (int tensor = 0; tensor < static_cast<int>(options_.tensors.size()); ++tensor) {
    if (!options_.tensors[static_cast<size_t>(tensor)].in_norm) continue;
    const double norm =
        numerics::Norm(FloatsOf(tensor).first(static_cast<size_t>(Padded(ParameterOf(tensor).size))));
    squares += norm * norm;
  }
  return std::sqrt(squares);
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

void GradientSums::Read(int tensor, std::span<float> values) const {
  const std::span<const float> floats = FloatsOf(tensor).first(values.size());
  std::memcpy(values.data(), floats.data(), values.size_bytes());
}

}  // namespace ringmaster::library
