// SPDX-License-Identifier: Apache-2.0

// The backward pass of Gpt, last layer first.
#include "worker/compute/engine/models/gpt.h"

namespace ringmaster::engine {

void Gpt::BiasBackward(const float* d, int64_t rows, int64_t columns, float* d_bias) {
  exec_.ParallelFor(columns, 64, [&](int64_t begin, int64_t end) {
    exec_.kernels().ColumnSums(rows, end - begin, d + begin, columns, d_bias + begin);
  });
}

void Gpt::NormBackward(const float* dy, const float* x, const float* gamma, const float* mean,
                       const float* rstd, int64_t rows, float* d_gamma, float* d_beta, float* dx) {
  const int64_t c = config_.width;
  exec_.ParallelFor(c, 64, [&](int64_t begin, int64_t end) {
    exec_.kernels().LayerNormBackwardParams(rows, c, begin, end, dy, x, mean, rstd, d_gamma, d_beta);
  });
  exec_.ParallelFor(rows, Exec::RowGrain(c), [&](int64_t begin, int64_t end) {
    exec_.kernels().LayerNormBackward(end - begin, c, dy + begin * c, x + begin * c, gamma, mean + begin,
                                      rstd + begin, dx + begin * c);
  });
}

void Gpt::AttentionBackward(const BlockActivations& act, const float* d_att, int64_t samples, float* d_qkv) {
  const int64_t c = config_.width;
  const int64_t size = c / config_.heads;
  exec_.RunUnits(samples * config_.heads, [&](int64_t unit, int worker) {
    const int64_t row = unit / config_.heads * config_.context;
    const int64_t column = unit % config_.heads * size;
    float* d_q = d_qkv + row * 3 * c + column;
    kernels::AttentionBackward(exec_.kernels(), HeadOf(act, unit),
                               {.out = act.att.get() + row * c + column,
                                .d_out = d_att + row * c + column,
                                .lse = act.lse.get() + unit * config_.context,
                                .d_q = d_q,
                                .d_k = d_q + c,
                                .d_v = d_q + 2 * c},
                               attention_scratch_[static_cast<size_t>(worker)].get());
  });
}

void Gpt::BackwardBlock(const float* params, const GptBlockTensors& at, const BlockActivations& act,
                        int64_t samples, float* grads) {
  const int64_t c = config_.width;
  const int64_t rows = samples * config_.context;
  float* d_residual = d_residual_.get();
  float* d_wide = d_wide_.get();
  float* d_narrow = d_narrow_.get();
  // For y = x W: dW = x^T d, shape (in, out), and dx = d W^T, shape (rows, in).
  const auto gradients = [&](const Buffer<float>& x, int64_t in, const float* d, int64_t out, int64_t weight,
                             float* dx) {
    exec_.MatmulGradients(
        {.m = in,
         .n = out,
         .k = rows,
         .a = {x.get(), in, true},
         .b = {d, out},
         .c = grads + weight,
         .ldc = out},
        {.m = rows, .n = in, .k = out, .a = {d, out}, .b = {params + weight, out, true}, .c = dx, .ldc = in});
  };

  // The MLP. d_residual_ is the gradient of the block's output.
  BiasBackward(d_residual, rows, c, grads + at.mlp_proj_b);
  gradients(act.gelu, 4 * c, d_residual, c, at.mlp_proj_w, d_wide);
  exec_.ParallelFor(rows * 4 * c, 16384, [&](int64_t begin, int64_t end) {
    exec_.kernels().GeluBackward(end - begin, act.fc.get() + begin, d_wide + begin);
  });
  BiasBackward(d_wide, rows, 4 * c, grads + at.fc_b);
  gradients(act.ln2, c, d_wide, 4 * c, at.fc_w, d_narrow);
  NormBackward(d_narrow, act.mid.get(), params + at.ln2_g, act.mean2.get(), act.rstd2.get(), rows,
               grads + at.ln2_g, grads + at.ln2_b, d_residual);

  // Attention. d_residual_ is now the gradient of the residual stream between attention and MLP.
  BiasBackward(d_residual, rows, c, grads + at.proj_b);
  gradients(act.att, c, d_residual, c, at.proj_w, d_narrow);
  AttentionBackward(act, d_narrow, samples, d_wide);
  BiasBackward(d_wide, rows, 3 * c, grads + at.qkv_b);
  gradients(act.ln1, c, d_wide, 3 * c, at.qkv_w, d_narrow);
  NormBackward(d_narrow, act.in.get(), params + at.ln1_g, act.mean1.get(), act.rstd1.get(), rows,
               grads + at.ln1_g, grads + at.ln1_b, d_residual);
}

Status Gpt::Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                     const std::atomic<bool>* cancel) {
  const int64_t c = config_.width;
  const int64_t v = config_.vocabulary;
  const int64_t samples = batch.samples;
  const int64_t rows = samples * config_.context;
  RM_TRY(Poll(cancel));
  // The tied head. Its part of the gradient of the embedding is written first; the part of the embedding is
  // added last.
  exec_.Matmul({.m = v,
                .n = c,
                .k = rows,
                .a = {logits(), v, true},
                .b = {ln_f_.get(), c},
                .c = grads + wte_,
                .ldc = c});
  RM_TRY(Poll(cancel));
  exec_.Matmul({.m = rows,
                .n = c,
                .k = v,
                .a = {logits(), v},
                .b = {params + wte_, c},
                .c = d_narrow_.get(),
                .ldc = c});
  std::fill_n(d_residual_.get(), rows * c, 0.0f);
  NormBackward(d_narrow_.get(), out_.get(), params + ln_f_g_, mean_f_.get(), rstd_f_.get(), rows,
               grads + ln_f_g_, grads + ln_f_b_, d_residual_.get());
  notifier.Final(ln_f_end_);
  for (size_t i = blocks_.size(); i-- > 0;) {
    RM_TRY(Poll(cancel));
    BackwardBlock(params, blocks_[i], act_[i], samples, grads);
    notifier.Final(blocks_[i].end);
  }
  RM_TRY(Poll(cancel));
  exec_.ParallelFor(config_.context, Exec::RowGrain(c), [&](int64_t begin, int64_t end) {
    exec_.kernels().PositionBackward(samples, config_.context, c, begin, end, d_residual_.get(),
                                     grads + wpe_);
  });
  exec_.ParallelFor(c, 64, [&](int64_t begin, int64_t end) {
    exec_.kernels().EmbeddingBackward(rows, c, begin, end, batch.tokens.data(), d_residual_.get(),
                                      grads + wte_);
  });
  return Ok();
}

}  // namespace ringmaster::engine
