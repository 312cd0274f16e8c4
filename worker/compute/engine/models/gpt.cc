// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/models/gpt.h"

#include <utility>

namespace ringmaster::engine {

Gpt::Gpt(const ModelConfig& config, const kernels::Kernels& kernels)
    : Gpt(config, MakeGptTensors(config), kernels) {}

Gpt::Gpt(const ModelConfig& config, GptTensors tensors, const kernels::Kernels& kernels)
    : ModelBase(config, std::move(tensors.tensors), kernels),
      blocks_(std::move(tensors.blocks)),
      ln_f_g_(tensors.ln_f_g),
      ln_f_b_(tensors.ln_f_b),
      ln_f_end_(tensors.ln_f_end),
      wpe_(tensors.wpe),
      wte_(tensors.wte) {
  const int64_t c = config.width;
  const int64_t rows = static_cast<int64_t>(config.max_samples) * config.context;
  act_.resize(static_cast<size_t>(config.layers));
  for (BlockActivations& act : act_) {
    act.in = Buffer<float>(rows * c);
    act.ln1 = Buffer<float>(rows * c);
    act.mean1 = Buffer<float>(rows);
    act.rstd1 = Buffer<float>(rows);
    act.qkv = Buffer<float>(rows * 3 * c);
    act.lse = Buffer<float>(rows * config.heads);
    act.att = Buffer<float>(rows * c);
    act.mid = Buffer<float>(rows * c);
    act.ln2 = Buffer<float>(rows * c);
    act.mean2 = Buffer<float>(rows);
    act.rstd2 = Buffer<float>(rows);
    act.fc = Buffer<float>(rows * 4 * c);
    act.gelu = Buffer<float>(rows * 4 * c);
  }
  out_ = Buffer<float>(rows * c);
  ln_f_ = Buffer<float>(rows * c);
  mean_f_ = Buffer<float>(rows);
  rstd_f_ = Buffer<float>(rows);
  d_residual_ = Buffer<float>(rows * c);
  d_wide_ = Buffer<float>(rows * 4 * c);
  d_narrow_ = Buffer<float>(rows * c);
  exec_.Reserve({.in = c, .out = 3 * c}, rows);
  exec_.Reserve({.in = c, .out = c}, rows);
  exec_.Reserve({.in = c, .out = 4 * c}, rows);
  exec_.Reserve({.in = 4 * c, .out = c}, rows);
  exec_.Reserve({.in = c, .out = config.vocabulary, .transposed = true}, rows);
  for (int t = 0; t < config.threads; ++t)
    attention_scratch_.emplace_back(kernels::AttentionScratch(config.context));
}

int64_t Gpt::ActivationBytes() const {
  int64_t bytes = BaseBytes() + exec_.ScratchBytes();
  for (const BlockActivations& act : act_)
    for (const Buffer<float>* buffer :
         {&act.in, &act.ln1, &act.mean1, &act.rstd1, &act.qkv, &act.lse, &act.att, &act.mid, &act.ln2,
          &act.mean2, &act.rstd2, &act.fc, &act.gelu})
      bytes += buffer->bytes();
  for (const Buffer<float>* buffer : {&out_, &ln_f_, &mean_f_, &rstd_f_, &d_residual_, &d_wide_, &d_narrow_})
    bytes += buffer->bytes();
  for (const Buffer<float>& scratch : attention_scratch_) bytes += scratch.bytes();
  return bytes;
}

void Gpt::Norm(const float* x, const float* gamma, const float* beta, int64_t rows, float* out, float* mean,
               float* rstd) {
  const int64_t c = config_.width;
  exec_.ParallelFor(rows, Exec::RowGrain(c), [&](int64_t begin, int64_t end) {
    exec_.kernels().LayerNormForward(end - begin, c, x + begin * c, gamma, beta, out + begin * c,
                                     mean + begin, rstd + begin);
  });
}

kernels::AttentionHead Gpt::HeadOf(const BlockActivations& act, int64_t unit) const {
  const int64_t c = config_.width;
  const int64_t size = c / config_.heads;
  const int64_t sample = unit / config_.heads;
  const float* q = act.qkv.get() + sample * config_.context * 3 * c + unit % config_.heads * size;
  return {.context = config_.context,
          .size = size,
          .ld_qkv = 3 * c,
          .ld_out = c,
          .q = q,
          .k = q + c,
          .v = q + 2 * c};
}

void Gpt::Attention(BlockActivations& act, int64_t samples) {
  const int64_t c = config_.width;
  const int64_t size = c / config_.heads;
  exec_.RunUnits(samples * config_.heads, [&](int64_t unit, int worker) {
    float* out = act.att.get() + unit / config_.heads * config_.context * c + unit % config_.heads * size;
    kernels::AttentionForward(exec_.kernels(), HeadOf(act, unit), out, act.lse.get() + unit * config_.context,
                              attention_scratch_[static_cast<size_t>(worker)].get());
  });
}

void Gpt::ForwardBlock(const float* params, const GptBlockTensors& at, BlockActivations& act, int64_t samples,
                       float* out) {
  const int64_t c = config_.width;
  const int64_t rows = samples * config_.context;
  Norm(act.in.get(), params + at.ln1_g, params + at.ln1_b, rows, act.ln1.get(), act.mean1.get(),
       act.rstd1.get());
  exec_.Matmul({.m = rows,
                .n = 3 * c,
                .k = c,
                .a = {act.ln1.get(), c},
                .b = {params + at.qkv_w, 3 * c},
                .c = act.qkv.get(),
                .ldc = 3 * c},
               {.bias = params + at.qkv_b});
  Attention(act, samples);
  exec_.Matmul({.m = rows,
                .n = c,
                .k = c,
                .a = {act.att.get(), c},
                .b = {params + at.proj_w, c},
                .c = act.mid.get(),
                .ldc = c},
               {.bias = params + at.proj_b, .residual = act.in.get()});
  Norm(act.mid.get(), params + at.ln2_g, params + at.ln2_b, rows, act.ln2.get(), act.mean2.get(),
       act.rstd2.get());
  exec_.Matmul({.m = rows,
                .n = 4 * c,
                .k = c,
                .a = {act.ln2.get(), c},
                .b = {params + at.fc_w, 4 * c},
                .c = act.fc.get(),
                .ldc = 4 * c},
               {.bias = params + at.fc_b});
  exec_.ParallelFor(rows * 4 * c, 16384, [&](int64_t begin, int64_t end) {
    exec_.kernels().GeluForward(end - begin, act.fc.get() + begin, act.gelu.get() + begin);
  });
  exec_.Matmul({.m = rows,
                .n = c,
                .k = 4 * c,
                .a = {act.gelu.get(), 4 * c},
                .b = {params + at.mlp_proj_w, c},
                .c = out,
                .ldc = c},
               {.bias = params + at.mlp_proj_b, .residual = act.mid.get()});
}

Status Gpt::Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) {
  const int64_t c = config_.width;
  const int64_t rows = static_cast<int64_t>(batch.samples) * config_.context;
  RM_TRY(Poll(cancel));
  exec_.ParallelFor(rows, Exec::RowGrain(c), [&](int64_t begin, int64_t end) {
    exec_.kernels().EmbeddingForward(end - begin, c, begin, config_.context, batch.tokens.data() + begin,
                                     params + wte_, params + wpe_, act_[0].in.get() + begin * c);
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    RM_TRY(Poll(cancel));
    ForwardBlock(params, blocks_[i], act_[i], batch.samples,
                 i + 1 < act_.size() ? act_[i + 1].in.get() : out_.get());
  }
  RM_TRY(Poll(cancel));
  Norm(out_.get(), params + ln_f_g_, params + ln_f_b_, rows, ln_f_.get(), mean_f_.get(), rstd_f_.get());
  exec_.Matmul({.m = rows,
                .n = config_.vocabulary,
                .k = c,
                .a = {ln_f_.get(), c},
                .b = {params + wte_, c, true},
                .c = logits(),
                .ldc = config_.vocabulary});
  return Poll(cancel);
}

}  // namespace ringmaster::engine
