// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/models/cnn.h"

#include <utility>

namespace ringmaster::engine {
namespace {

// Samples per group. One worker adds the weight gradients of a group in order; the groups are then added in
// order. The size affects the bits, so it is a constant.
constexpr int64_t kGroup = 4;

int64_t Groups(int64_t samples) { return (samples + kGroup - 1) / kGroup; }

}  // namespace

Cnn::Cnn(const ModelConfig& config, const kernels::Kernels& kernels)
    : Cnn(config, MakeCnnTensors(config), kernels) {}

Cnn::Cnn(const ModelConfig& config, CnnTensors tensors, const kernels::Kernels& kernels)
    : ModelBase(config, std::move(tensors.tensors), kernels),
      stages_(std::move(tensors.stages)),
      dense_(tensors.dense) {
  const int64_t samples = config.max_samples;
  images_ = Buffer<float>(samples * ImageSize(config));
  int64_t patches = 0, conv = 0, weights = 0;
  for (const ConvTensors& stage : stages_) {
    StageActivations& act = act_.emplace_back();
    act.conv = Buffer<float>(samples * stage.Pixels() * stage.out);
    act.pooled = Buffer<float>(samples * stage.PooledSize());
    act.winner = Buffer<uint8_t>(samples * stage.PooledSize());
    act.d_pooled = Buffer<float>(samples * stage.PooledSize());
    patches = std::max({patches, stage.Pixels() * 9 * stage.in, stage.out});
    conv = std::max(conv, stage.Pixels() * stage.out);
    weights = std::max(weights, (9 * stage.in + 1) * stage.out);
    exec_.ReserveSerial(stage.Pixels(), stage.out, 9 * stage.in);
  }
  exec_.Reserve({.in = dense_.in, .out = config.classes}, samples);
  partial_ = Buffer<float>(Groups(samples) * weights);
  for (int t = 0; t < config.threads; ++t) scratch_.push_back({Buffer<float>(patches), Buffer<float>(conv)});
}

int64_t Cnn::ActivationBytes() const {
  int64_t bytes = BaseBytes() + exec_.ScratchBytes() + images_.bytes() + partial_.bytes();
  for (const StageActivations& act : act_)
    bytes += act.conv.bytes() + act.pooled.bytes() + act.winner.bytes() + act.d_pooled.bytes();
  for (const Scratch& scratch : scratch_) bytes += scratch.patches.bytes() + scratch.d_conv.bytes();
  return bytes;
}

void Cnn::ForwardStage(const float* params, size_t index, int64_t samples) {
  const ConvTensors& stage = stages_[index];
  StageActivations& act = act_[index];
  exec_.RunUnits(samples, [&](int64_t sample, int worker) {
    float* patches = scratch_[static_cast<size_t>(worker)].patches.get();
    float* conv = act.conv.get() + sample * stage.Pixels() * stage.out;
    exec_.kernels().Patches(stage.height, stage.width, stage.in, Input(index) + sample * stage.InputSize(),
                            patches);
    exec_.MatmulSerial(worker, {.m = stage.Pixels(),
                                .n = stage.out,
                                .k = 9 * stage.in,
                                .a = {patches, 9 * stage.in},
                                .b = {params + stage.weight, stage.out},
                                .c = conv,
                                .ldc = stage.out});
    exec_.kernels().AddBias(stage.Pixels(), stage.out, conv, stage.out, params + stage.bias, nullptr, 0);
    exec_.kernels().ReluForward(stage.Pixels() * stage.out, conv);
    exec_.kernels().MaxPoolForward(stage.height, stage.width, stage.out, conv,
                                   act.pooled.get() + sample * stage.PooledSize(),
                                   act.winner.get() + sample * stage.PooledSize());
  });
}

Status Cnn::Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) {
  const int64_t samples = batch.samples;
  const int64_t pixels = static_cast<int64_t>(config_.height) * config_.image_width;
  RM_TRY(Poll(cancel));
  exec_.ParallelFor(samples, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * pixels; i < end * pixels; ++i)
      for (int64_t c = 0; c < config_.channels; ++c)
        images_.get()[i * config_.channels + c] =
            batch.images[static_cast<size_t>((i / pixels * config_.channels + c) * pixels + i % pixels)];
  });
  for (size_t i = 0; i < stages_.size(); ++i) {
    RM_TRY(Poll(cancel));
    ForwardStage(params, i, samples);
  }
  exec_.Matmul({.m = samples,
                .n = config_.classes,
                .k = dense_.in,
                .a = {act_.back().pooled.get(), dense_.in},
                .b = {params + dense_.weight, config_.classes},
                .c = logits(),
                .ldc = config_.classes},
               {.bias = params + dense_.bias});
  return Poll(cancel);
}

void Cnn::BackwardStage(const float* params, size_t index, int64_t samples, float* grads) {
  const ConvTensors& stage = stages_[index];
  StageActivations& act = act_[index];
  const int64_t k = 9 * stage.in;
  const int64_t row = (k + 1) * stage.out;  // row of partial_: weight, then bias
  exec_.RunUnits(Groups(samples), [&](int64_t group, int worker) {
    Scratch& scratch = scratch_[static_cast<size_t>(worker)];
    float* d_weight = partial_.get() + group * row;
    float* d_bias = d_weight + k * stage.out;
    float* patches = scratch.patches.get();
    float* d_conv = scratch.d_conv.get();
    std::fill_n(d_bias, stage.out, 0.0f);
    for (int64_t sample = group * kGroup; sample < std::min(samples, (group + 1) * kGroup); ++sample) {
      exec_.kernels().MaxPoolBackward(stage.height, stage.width, stage.out,
                                      act.d_pooled.get() + sample * stage.PooledSize(),
                                      act.winner.get() + sample * stage.PooledSize(), d_conv);
      exec_.kernels().ReluBackward(stage.Pixels() * stage.out,
                                   act.conv.get() + sample * stage.Pixels() * stage.out, d_conv);
      exec_.kernels().Patches(stage.height, stage.width, stage.in, Input(index) + sample * stage.InputSize(),
                              patches);
      exec_.MatmulSerial(worker, {.m = k,
                                  .n = stage.out,
                                  .k = stage.Pixels(),
                                  .a = {patches, k, true},
                                  .b = {d_conv, stage.out},
                                  .c = d_weight,
                                  .ldc = stage.out,
                                  .accumulate = sample != group * kGroup});
      float* sums = patches;  // the patches are no longer needed and have room for a row of channels
      exec_.kernels().ColumnSums(stage.Pixels(), stage.out, d_conv, stage.out, sums);
      exec_.kernels().AddBias(1, stage.out, d_bias, stage.out, sums, nullptr, 0);
      if (index == 0) continue;
      exec_.MatmulSerial(worker, {.m = stage.Pixels(),
                                  .n = k,
                                  .k = stage.out,
                                  .a = {d_conv, stage.out},
                                  .b = {params + stage.weight, stage.out, true},
                                  .c = patches,
                                  .ldc = k});
      exec_.kernels().PatchesBackward(stage.height, stage.width, stage.in, patches,
                                      act_[index - 1].d_pooled.get() + sample * stage.InputSize());
    }
  });
  exec_.ParallelFor(k * stage.out, 4096, [&](int64_t begin, int64_t end) {
    exec_.kernels().ColumnSums(Groups(samples), end - begin, partial_.get() + begin, row,
                               grads + stage.weight + begin);
  });
  exec_.kernels().ColumnSums(Groups(samples), stage.out, partial_.get() + k * stage.out, row,
                             grads + stage.bias);
}

Status Cnn::Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                     const std::atomic<bool>* cancel) {
  const int64_t samples = batch.samples;
  RM_TRY(Poll(cancel));
  exec_.Matmul({.m = dense_.in,
                .n = config_.classes,
                .k = samples,
                .a = {act_.back().pooled.get(), dense_.in, true},
                .b = {logits(), config_.classes},
                .c = grads + dense_.weight,
                .ldc = config_.classes});
  exec_.kernels().ColumnSums(samples, config_.classes, logits(), config_.classes, grads + dense_.bias);
  notifier.Final(dense_.end);
  exec_.Matmul({.m = samples,
                .n = dense_.in,
                .k = config_.classes,
                .a = {logits(), config_.classes},
                .b = {params + dense_.weight, config_.classes, true},
                .c = act_.back().d_pooled.get(),
                .ldc = dense_.in});
  for (size_t i = stages_.size(); i-- > 0;) {
    RM_TRY(Poll(cancel));
    BackwardStage(params, i, samples, grads);
    notifier.Final(stages_[i].end);
  }
  return Ok();
}

}  // namespace ringmaster::engine
