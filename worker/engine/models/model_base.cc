#include "worker/engine/models/model_base.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringmaster::engine {

ModelBase::ModelBase(const ModelConfig& config, int64_t rows_per_sample, int64_t row_width,
                     const kernels::Kernels& kernels)
    : config_(config),
      exec_(config.threads, config.precision, kernels),
      rows_per_sample_(rows_per_sample),
      row_width_(row_width),
      logits_(config.max_samples * rows_per_sample * row_width),
      losses_(config.max_samples * rows_per_sample),
      weights_(config.max_samples * rows_per_sample),
      hits_(config.max_samples * rows_per_sample) {}

int64_t ModelBase::AddParameter(std::string name, std::vector<int64_t> shape, const Initial& initial) {
  initial_.push_back(initial);
  return builder_.Add(std::move(name), std::move(shape));
}

Status ModelBase::Poll(const std::atomic<bool>* cancel) const {
  if (progress_) progress_();
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
    return Error{Code::kCancelled, "the step was cancelled"};
  return Ok();
}

Status ModelBase::CheckBatch(const Batch& batch, bool with_targets) const {
  if (batch.samples < 0 || batch.samples > config_.max_samples)
    return Error{Code::kInvalid, fmt::format("batch of {} samples: the model was made for at most {}",
                                             batch.samples, config_.max_samples)};
  const auto inputs = static_cast<size_t>(batch.samples * InputsPerSample());
  const size_t given = TakesTokens() ? batch.tokens.size() : batch.images.size();
  if (given != inputs)
    return Error{Code::kInvalid, fmt::format("batch of {} samples needs {} {}, got {}", batch.samples, inputs,
                                             TakesTokens() ? "tokens" : "image values", given)};
  if (TakesTokens())
    for (const int32_t token : batch.tokens)
      if (token < 0 || token >= config_.vocabulary)
        return Error{Code::kInvalid,
                     fmt::format("token {} is outside the vocabulary of {}", token, config_.vocabulary)};
  if (!with_targets) return Ok();
  if (batch.targets.size() != static_cast<size_t>(batch.samples * rows_per_sample_))
    return Error{Code::kInvalid, fmt::format("batch of {} samples needs {} targets, got {}", batch.samples,
                                             batch.samples * rows_per_sample_, batch.targets.size())};
  for (const int32_t target : batch.targets)
    if (target >= row_width_)
      return Error{Code::kInvalid, fmt::format("target {} is not below {}", target, row_width_)};
  return Ok();
}

void ModelBase::Loss(const Batch& batch, bool with_gradient) {
  const int64_t rows = batch.samples * rows_per_sample_;
  for (int64_t s = 0; s < batch.samples; ++s) {
    const int32_t* targets = batch.targets.data() + s * rows_per_sample_;
    const int64_t counted =
        std::count_if(targets, targets + rows_per_sample_, [](int32_t target) { return target >= 0; });
    const float weight = counted == 0 ? 0.0f : static_cast<float>(1.0 / static_cast<double>(counted));
    std::fill_n(weights_.get() + s * rows_per_sample_, rows_per_sample_, weight);
  }
  exec_.Pieces(rows, Exec::RowGrain(row_width_), [&](int64_t begin, int64_t end) {
    float* x = logits_.get() + begin * row_width_;
    const int32_t* targets = batch.targets.data() + begin;
    float* losses = losses_.get() + begin;
    uint8_t* hits = hits_.get() + begin;
    if (with_gradient)
      exec_.kernels().CrossEntropyGradient(end - begin, row_width_, x, targets, weights_.get() + begin,
                                           losses, hits);
    else
      exec_.kernels().CrossEntropy(end - begin, row_width_, x, targets, losses, hits);
  });
}

Sums ModelBase::Summarise(const Batch& batch) const {
  Sums sums;
  for (int64_t s = 0; s < batch.samples; ++s) {
    double loss = 0;
    int64_t counted = 0;
    for (int64_t r = s * rows_per_sample_; r < (s + 1) * rows_per_sample_; ++r) {
      if (batch.targets[static_cast<size_t>(r)] < 0) continue;
      loss += static_cast<double>(losses_.get()[r]);
      sums.correct += hits_.get()[r];
      ++counted;
    }
    if (counted > 0) sums.loss += loss / static_cast<double>(counted);
    sums.predictions += counted;
  }
  return sums;
}

Result<Sums> ModelBase::ForwardBackward(const Params& params, const Batch& batch, std::span<float> grads,
                                        const std::function<void(int)>& on_final,
                                        const std::atomic<bool>* cancel) {
  CHECK(static_cast<int64_t>(params.values.size()) == layout_.elements,
        "params has {} elements, the layout {}", params.values.size(), layout_.elements);
  CHECK(static_cast<int64_t>(grads.size()) == layout_.elements, "grads has {} elements, the layout {}",
        grads.size(), layout_.elements);
  RM_TRY(CheckBatch(batch, true));
  BucketNotifier notifier(layout_, on_final);
  if (batch.samples == 0) {
    RM_TRY(Poll(cancel));
    std::fill(grads.begin(), grads.end(), 0.0f);
    notifier.Final(layout_.elements);
    return Sums{};
  }
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const int64_t begin = layout_.parameters[i].offset + layout_.parameters[i].size;
    const int64_t end =
        i + 1 < layout_.parameters.size() ? layout_.parameters[i + 1].offset : layout_.elements;
    std::fill(grads.data() + begin, grads.data() + end, 0.0f);
  }
  exec_.Begin(params.values.data(), params.version, true);
  RM_TRY(Forward(params.values.data(), batch, cancel));
  Loss(batch, true);
  const Sums sums = Summarise(batch);
  RM_TRY(Backward(params.values.data(), batch, grads.data(), notifier, cancel));
  notifier.Final(layout_.elements);
  return sums;
}

Sums ModelBase::Evaluate(const Params& params, const Batch& batch) {
  CHECK(static_cast<int64_t>(params.values.size()) == layout_.elements);
  const Status good = CheckBatch(batch, true);
  CHECK(good.ok(), "Evaluate: {}", good.error().message);
  if (batch.samples == 0) return {};
  exec_.Begin(params.values.data(), params.version, false);
  const Status done = Forward(params.values.data(), batch, nullptr);
  CHECK(done.ok());
  Loss(batch, false);
  return Summarise(batch);
}

Result<std::span<const float>> ModelBase::Logits(const Params& params, const Batch& batch) {
  CHECK(static_cast<int64_t>(params.values.size()) == layout_.elements);
  RM_TRY(CheckBatch(batch, false));
  if (batch.samples > 0) {
    exec_.Begin(params.values.data(), params.version, false);
    RM_TRY(Forward(params.values.data(), batch, nullptr));
  }
  return std::span<const float>(logits_.get(),
                                static_cast<size_t>(batch.samples * rows_per_sample_ * row_width_));
}

}  // namespace ringmaster::engine
