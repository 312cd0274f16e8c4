// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/models/model_base.h"

#include <algorithm>

namespace ringmaster::engine {

ModelBase::ModelBase(const ModelConfig& config, Tensors tensors, const kernels::Kernels& kernels)
    : config_(config),
      layout_(std::move(tensors.layout)),
      exec_(config.threads, config.precision, kernels),
      rules_(config),
      rows_per_sample_(rules_.rows_per_sample),
      row_width_(rules_.row_width),
      initial_(std::move(tensors.initial)),
      logits_(config.max_samples * rows_per_sample_ * row_width_),
      losses_(config.max_samples * rows_per_sample_),
      weights_(config.max_samples * rows_per_sample_),
      hits_(config.max_samples * rows_per_sample_) {}

Status ModelBase::Poll(const std::atomic<bool>* cancel) const {
  if (progress_) progress_();
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
    return Error{Code::kCancelled, "the step was cancelled"};
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
  exec_.ParallelFor(rows, Exec::RowGrain(row_width_), [&](int64_t begin, int64_t end) {
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
  RM_TRY(rules_.Check(batch, true));
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
  RM_TRY(Forward(params.values.data(), batch, cancel));
  Loss(batch, true);
  const Sums sums = Summarise(batch);
  RM_TRY(Backward(params.values.data(), batch, grads.data(), notifier, cancel));
  notifier.Final(layout_.elements);
  return sums;
}

Status ModelBase::Enqueue(const Params& params, const Batch& batch, std::span<float> grads,
                          const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) {
  RM_ASSIGN(const Sums sums, ForwardBackward(params, batch, grads, on_final, cancel));
  pending_.push_back(sums);
  return Ok();
}

Result<Sums> ModelBase::Evaluate(const Params& params, const Batch& batch) {
  CHECK(static_cast<int64_t>(params.values.size()) == layout_.elements);
  RM_TRY(rules_.Check(batch, true));
  if (batch.samples == 0) return Sums{};
  RM_TRY(Forward(params.values.data(), batch, nullptr));
  Loss(batch, false);
  return Summarise(batch);
}

Result<std::span<const float>> ModelBase::Logits(const Params& params, const Batch& batch) {
  CHECK(static_cast<int64_t>(params.values.size()) == layout_.elements);
  RM_TRY(rules_.Check(batch, false));
  if (batch.samples > 0) {
    RM_TRY(Forward(params.values.data(), batch, nullptr));
  }
  return std::span<const float>(logits_.get(),
                                static_cast<size_t>(batch.samples * rows_per_sample_ * row_width_));
}

}  // namespace ringmaster::engine
