// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/models/mlp.h"

#include <utility>

namespace ringmaster::engine {

Mlp::Mlp(const ModelConfig& config, const kernels::Kernels& kernels)
    : Mlp(config, MakeMlpTensors(config), kernels) {}

Mlp::Mlp(const ModelConfig& config, MlpTensors tensors, const kernels::Kernels& kernels)
    : ModelBase(config, std::move(tensors.tensors), kernels), dense_(std::move(tensors.dense)) {
  for (const DenseTensors& layer : dense_)
    exec_.Reserve({.in = layer.in, .out = layer.out}, config.max_samples);
  for (int i = 0; i < config.layers; ++i)
    hidden_.emplace_back(static_cast<int64_t>(config.max_samples) * config.width);
  for (Buffer<float>& d : d_hidden_)
    d = Buffer<float>(static_cast<int64_t>(config.max_samples) * config.width);
}

int64_t Mlp::ActivationBytes() const {
  int64_t bytes = BaseBytes() + exec_.ScratchBytes() + d_hidden_[0].bytes() + d_hidden_[1].bytes();
  for (const Buffer<float>& hidden : hidden_) bytes += hidden.bytes();
  return bytes;
}

Status Mlp::Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) {
  const float* in = batch.images.data();
  for (size_t i = 0; i < dense_.size(); ++i) {
    RM_TRY(Poll(cancel));
    const DenseTensors& layer = dense_[i];
    const bool last = i + 1 == dense_.size();
    float* out = last ? logits() : hidden_[i].get();
    exec_.Matmul({.m = batch.samples,
                  .n = layer.out,
                  .k = layer.in,
                  .a = {in, layer.in},
                  .b = {params + layer.weight, layer.out},
                  .c = out,
                  .ldc = layer.out},
                 {.bias = params + layer.bias});
    if (!last)
      exec_.ParallelFor(batch.samples * layer.out, 16384, [&](int64_t begin, int64_t end) {
        exec_.kernels().ReluForward(end - begin, out + begin);
      });
    in = out;
  }
  return Ok();
}

Status Mlp::Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                     const std::atomic<bool>* cancel) {
  const int64_t samples = batch.samples;
  float* d = logits();
  for (size_t i = dense_.size(); i-- > 0;) {
    RM_TRY(Poll(cancel));
    const DenseTensors& layer = dense_[i];
    const float* in = i == 0 ? batch.images.data() : hidden_[i - 1].get();
    exec_.Matmul({.m = layer.in,
                  .n = layer.out,
                  .k = samples,
                  .a = {in, layer.in, true},
                  .b = {d, layer.out},
                  .c = grads + layer.weight,
                  .ldc = layer.out});
    exec_.ParallelFor(layer.out, 64, [&](int64_t begin, int64_t end) {
      exec_.kernels().ColumnSums(samples, end - begin, d + begin, layer.out, grads + layer.bias + begin);
    });
    notifier.Final(layer.end);
    if (i == 0) break;
    float* d_in = d_hidden_[i % 2].get();
    exec_.Matmul({.m = samples,
                  .n = layer.in,
                  .k = layer.out,
                  .a = {d, layer.out},
                  .b = {params + layer.weight, layer.out, true},
                  .c = d_in,
                  .ldc = layer.in});
    exec_.ParallelFor(samples * layer.in, 16384, [&](int64_t begin, int64_t end) {
      exec_.kernels().ReluBackward(end - begin, in + begin, d_in + begin);
    });
    d = d_in;
  }
  return Ok();
}

}  // namespace ringmaster::engine
