// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/models/gpt.h"

#include <algorithm>
#include <utility>

#include "worker/compute/cuda/kernels/bias.h"
#include "worker/compute/cuda/kernels/embedding.h"
#include "worker/compute/cuda/kernels/layernorm.h"

namespace ringmaster::cuda {
namespace {

AttentionProblem AttentionOf(const engine::ModelConfig& config, DType type) {
  return {.samples = config.max_samples,
          .heads = config.heads,
          .context = config.context,
          .head_size = config.width / config.heads,
          .type = type};
}

}  // namespace

template <class T>
Gpt<T>::Gpt(const engine::ModelConfig& config, Stream stream, const Algorithms& algorithms,
            const ModelOptions& options)
    : Gpt(config, engine::MakeGptTensors(config), stream, algorithms, options) {}

template <class T>
Gpt<T>::Gpt(const engine::ModelConfig& config, engine::GptTensors tensors, Stream stream,
            const Algorithms& algorithms, const ModelOptions& options)
    : Base(config, std::move(tensors.tensors), stream, algorithms, options),
      problem_(AttentionOf(config, Base::kType)),
      at_(std::move(tensors)),
      act_(static_cast<size_t>(config.layers)) {
  const int64_t rows = this->Rows();
  const int64_t c = C();
  for (BlockActivations& act : act_) {
    for (Buffer<T>* const narrow : {&act.in, &act.ln1, &act.att, &act.mid, &act.ln2})
      this->Reserve(*narrow, rows * c, "activations");
    for (Buffer<float>* const row : {&act.mean1, &act.rstd1, &act.mean2, &act.rstd2})
      this->Reserve(*row, rows, "activations");
    this->Reserve(act.qkv, rows * 3 * c, "activations");
    this->Reserve(act.lse, rows * config.heads, "activations");
    this->Reserve(act.fc, rows * 4 * c, "activations");
    this->Reserve(act.gelu, rows * 4 * c, "activations");
  }
  for (Buffer<T>* const narrow : {&out_, &ln_f_}) this->Reserve(*narrow, rows * c, "activations");
  for (Buffer<float>* const row : {&mean_f_, &rstd_f_}) this->Reserve(*row, rows, "activations");
  this->Reserve(d_residual_, rows * c, "gradients of activations");
  this->Reserve(narrow_, rows * c, "gradients of activations");
  this->Reserve(d_wide_, rows * 4 * c, "gradients of activations");
  this->Reserve(scratch_,
                std::max({Attention::Scratch(problem_), kernels::ColumnSumsScratch(rows, 4 * c),
                          kernels::ColumnSumsScratch(rows, 3 * c), kernels::ColumnSumsScratch(rows, c),
                          kernels::LayerNormBackwardScratch(rows, c)}),
                "scratch");
  this->Reserve(sorted_, kernels::EmbeddingBackwardScratch(rows), "scratch");
  PlanGemms();
}

template <class T>
void Gpt<T>::PlanGemms() {
  const int64_t rows = this->Rows();
  const int64_t c = C();
  const std::pair<int64_t, int64_t> weights[] = {{c, 3 * c}, {c, c}, {c, 4 * c}, {4 * c, c}};
  for (const auto& [in, out] : weights) {
    this->Plan(Base::ForwardShape(rows, in, out, ForwardEpilogue(in, out)));
    this->Plan(Base::InputGradientShape(rows, in, out, BackwardEpilogue(in)));
    this->Plan(Base::WeightGradientShape(rows, in, out));
  }
  for (const Chunk& chunk : this->Chunks()) {
    this->Plan(HeadShape(chunk));
    this->Plan(HeadInputGradientShape(chunk));
    for (const Chunk& tokens : TokenRanges()) this->Plan(HeadWeightGradientShape(chunk, tokens));
  }
}

template <class T>
Status Gpt<T>::PlanMore() {
  RM_TRY(this->attention().Prepare(problem_));
  this->AddAllocated(this->attention().WorkspaceBytes(), "attention");
  return Ok();
}

template <class T>
GemmShape Gpt<T>::HeadShape(const Chunk& chunk) const {
  GemmShape shape = Base::ForwardShape(chunk.rows, C(), HeadColumns(), Epilogue::kNone);
  shape.b_transposed = true;
  shape.ldc = this->LogitsStride();
  return shape;
}
template <class T>
GemmShape Gpt<T>::HeadInputGradientShape(const Chunk& chunk) const {
  GemmShape shape = Base::InputGradientShape(chunk.rows, C(), HeadColumns());
  shape.b_transposed = false;
  shape.lda = this->LogitsStride();
  return shape;
}
template <class T>
GemmShape Gpt<T>::HeadWeightGradientShape(const Chunk& chunk, const Chunk& tokens) const {
  GemmShape shape = Base::WeightGradientShape(chunk.rows, tokens.rows, C());
  shape.lda = this->LogitsStride();
  shape.accumulate = chunk.begin > 0;
  return shape;
}

template <class T>
std::vector<typename Gpt<T>::Chunk> Gpt<T>::TokenRanges() const {
  constexpr int64_t kFastTokens = 128;  // begins the second range at the alignment that cuBLASLt assumes
  const int64_t all = this->config_.vocabulary;
  const int64_t fast = all / kFastTokens * kFastTokens;
  std::vector<Chunk> ranges;
  if (fast > 0) ranges.push_back({0, fast});
  if (fast < all) ranges.push_back({fast, all - fast});
  return ranges;
}

template <class T>
typename Gpt<T>::Norm Gpt<T>::NormBefore(size_t i) {
  if (i == act_.size()) return {at_.ln_f_g, at_.ln_f_b, &out_, &ln_f_, &mean_f_, &rstd_f_};
  BlockActivations& act = act_[i];
  return {at_.blocks[i].ln1_g, at_.blocks[i].ln1_b, &act.in, &act.ln1, &act.mean1, &act.rstd1};
}

template <class T>
typename Gpt<T>::Norm Gpt<T>::NormInside(size_t i) {
  BlockActivations& act = act_[i];
  return {at_.blocks[i].ln2_g, at_.blocks[i].ln2_b, &act.mid, &act.ln2, &act.mean2, &act.rstd2};
}

template <class T>
int64_t Gpt<T>::BiasBefore(size_t i) const {
  return i == 0 ? kNoBias : at_.blocks[i - 1].mlp_proj_b;
}

template <class T>
void Gpt<T>::AddAndNormalise(const T* residual, int64_t bias, const Norm& norm) {
  kernels::ResidualLayerNormForward(this->stream(), this->Rows(), C(), residual, std::as_const(narrow_).get(),
                                    this->Master(bias), this->Master(norm.gamma), this->Master(norm.beta),
                                    norm.in->get(), norm.out->get(), norm.mean->get(), norm.rstd->get());
}

template <class T>
void Gpt<T>::ForwardBlock(size_t i) {
  const engine::GptBlockTensors& at = at_.blocks[i];
  BlockActivations& act = act_[i];
  const int64_t rows = this->Rows();
  const int64_t c = C();
  this->Multiply(Base::ForwardShape(rows, c, 3 * c, ForwardEpilogue(c, 3 * c)),
                 {act.ln1.get(), this->Operand(at.qkv_w), act.qkv.get(), this->Operand(at.qkv_b)});
  this->attention().Forward(this->stream(), problem_,
                            {.qkv = act.qkv.get(), .out = act.att.get(), .lse = act.lse.get()});
  this->Multiply(Base::ForwardShape(rows, c, c, ForwardEpilogue(c, c)),
                 {act.att.get(), this->Operand(at.proj_w), narrow_.get()});
  AddAndNormalise(act.in.get(), at.proj_b, NormInside(i));
  this->Multiply(
      Base::ForwardShape(rows, c, 4 * c, ForwardEpilogue(c, 4 * c)),
      {act.ln2.get(), this->Operand(at.fc_w), act.gelu.get(), this->Operand(at.fc_b), act.fc.get()});
  this->Multiply(Base::ForwardShape(rows, 4 * c, c, ForwardEpilogue(4 * c, c)),
                 {act.gelu.get(), this->Operand(at.mlp_proj_w), narrow_.get()});
  AddAndNormalise(act.mid.get(), at.mlp_proj_b, NormBefore(i + 1));
}

template <class T>
Status Gpt<T>::Body(const std::atomic<bool>* cancel) {
  RM_TRY(this->RunSegment(cancel, [&] {
    const int64_t rows = this->Rows();
    const Norm first = NormBefore(0);
    kernels::EmbeddingForward(this->stream(), rows, C(), this->config_.context, this->tokens(),
                              this->Master(at_.wte), this->Master(at_.wpe), first.in->get());
    kernels::LayerNormForward<T>(this->stream(), rows, C(), first.in->get(), this->Master(first.gamma),
                                 this->Master(first.beta), first.out->get(), first.mean->get(),
                                 first.rstd->get());
  }));
  for (size_t i = 0; i < act_.size(); ++i) RM_TRY(this->RunSegment(cancel, [&] { ForwardBlock(i); }));
  return Ok();
}

template <class T>
void Gpt<T>::Head(const Chunk& chunk) {
  this->Multiply(HeadShape(chunk), {ln_f_.get() + chunk.begin * C(), this->Operand(at_.wte), this->logits()});
}

template <class T>
void Gpt<T>::HeadBackward(const Chunk& chunk, float* grads) {
  // The tied head. Its part of the gradient of the embedding is written first; the part of the embedding is
  // added last.
  for (const Chunk& tokens : TokenRanges())
    this->Multiply(HeadWeightGradientShape(chunk, tokens),
                   {this->logits() + tokens.begin, ln_f_.get() + chunk.begin * C(),
                    grads + at_.wte + tokens.begin * C()});
  this->Multiply(HeadInputGradientShape(chunk),
                 {this->logits(), this->Operand(at_.wte), narrow_.get() + chunk.begin * C()});
}

template <class T>
void Gpt<T>::Gradients(const T* x, int64_t in, const T* d, int64_t out, int64_t weight, float* grads, T* dx,
                       T* before_gelu) {
  const int64_t rows = this->Rows();
  this->Multiply(Base::WeightGradientShape(rows, in, out), {x, d, grads + weight});
  this->Multiply(Base::InputGradientShape(rows, in, out, BackwardEpilogue(in)),
                 {d, this->Operand(weight), dx, nullptr, before_gelu});
}

template <class T>
void Gpt<T>::BiasGradient(const T* d, int64_t out, int64_t bias, float* grads) {
  kernels::ColumnSums(this->stream(), this->Rows(), out, d, grads + bias, scratch_.get());
}

template <class T>
void Gpt<T>::NormBackward(const Norm& norm, int64_t bias, float* grads) {
  const bool is_final = norm.gamma == at_.ln_f_g;
  kernels::LayerNormBackward<T>(this->stream(), this->Rows(), C(), narrow_.get(), norm.in->get(),
                                this->Master(norm.gamma), norm.mean->get(), norm.rstd->get(), !is_final,
                                d_residual_.get(), grads + norm.gamma, grads + norm.beta,
                                bias == kNoBias ? nullptr : grads + bias, scratch_.get());
}

template <class T>
void Gpt<T>::BackwardBlock(size_t i, float* grads) {
  const engine::GptBlockTensors& at = at_.blocks[i];
  BlockActivations& act = act_[i];
  const int64_t c = C();
  T* const residual = d_residual_.get();
  T* const wide = d_wide_.get();
  T* const narrow = narrow_.get();
  // The MLP. d_residual_ is the gradient of the block's output.
  Gradients(act.gelu.get(), 4 * c, residual, c, at.mlp_proj_w, grads, wide, act.fc.get());
  BiasGradient(wide, 4 * c, at.fc_b, grads);
  Gradients(act.ln2.get(), c, wide, 4 * c, at.fc_w, grads, narrow);
  NormBackward(NormInside(i), at.proj_b, grads);
  // Attention. d_residual_ is now the gradient of the residual stream between attention and MLP.
  Gradients(act.att.get(), c, residual, c, at.proj_w, grads, narrow);
  this->attention().Backward(
      this->stream(), problem_,
      {.qkv = act.qkv.get(), .out = act.att.get(), .lse = act.lse.get(), .d_out = narrow, .d_qkv = wide},
      scratch_.get());
  BiasGradient(wide, 3 * c, at.qkv_b, grads);
  Gradients(act.ln1.get(), c, wide, 3 * c, at.qkv_w, grads, narrow);
  NormBackward(NormBefore(i), BiasBefore(i), grads);
}

template <class T>
Status Gpt<T>::BodyBackward(float* grads, engine::BucketNotifier& notifier, const std::atomic<bool>* cancel) {
  RM_TRY(this->RunSegment(cancel,
                          [&] { NormBackward(NormBefore(act_.size()), BiasBefore(act_.size()), grads); }));
  notifier.Final(at_.ln_f_end);
  for (size_t i = act_.size(); i-- > 0;) {
    RM_TRY(this->RunSegment(cancel, [&] { BackwardBlock(i, grads); }));
    notifier.Final(at_.blocks[i].end);
  }
  return this->RunSegment(cancel, [&] {
    kernels::PositionBackward<T>(this->stream(), this->samples(), this->config_.context, C(),
                                 d_residual_.get(), grads + at_.wpe);
    kernels::EmbeddingBackward<T>(this->stream(), this->Rows(), C(), this->config_.vocabulary, this->tokens(),
                                  d_residual_.get(), grads + at_.wte, sorted_.get());
  });
}

template class Gpt<float>;
template class Gpt<Bf16>;

}  // namespace ringmaster::cuda
