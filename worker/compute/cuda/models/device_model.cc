// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/models/device_model.h"

#include <algorithm>

#include "base/check.h"
#include "worker/compute/cuda/kernels/convert.h"

namespace ringmaster::cuda {
namespace {

using engine::Batch;
using engine::Params;
using engine::Sums;

// The rows of a chunk are a multiple of this, so that every chunk is aligned.
constexpr int64_t kChunkRows = 128;
// Rows of logits are padded to a multiple of this, for which products are faster.
constexpr int64_t kStride = 64;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

template <class T>
DeviceModel<T>::DeviceModel(const engine::ModelConfig& config, engine::Tensors tensors, Stream stream,
                            const Algorithms& algorithms, const ModelOptions& options)
    : config_(config),
      layout_(std::move(tensors.layout)),
      stream_(stream),
      algorithms_(algorithms),
      rules_(config),
      initial_(std::move(tensors.initial)),
      plan_(config.kind == engine::ModelKind::kGpt
                ? "raise spec.training.batch.microBatches, or lower the model's context, width or layers"
                : "raise spec.training.batch.microBatches, or lower the model's width or layers"),
      segments_(stream, options.graphs),
      stride_(RoundUp(rules_.row_width, kStride)),
      chunk_rows_(Rows()) {
  if (rules_.of_tokens) {  // chunks of nearly equal size
    const int64_t bytes = Rows() * stride_ * static_cast<int64_t>(sizeof(T));
    const int64_t chunks = (bytes + options.logits_bytes - 1) / options.logits_bytes;
    chunk_rows_ = std::min(Rows(), RoundUp((Rows() + chunks - 1) / chunks, kChunkRows));
  }
  // The head, tied to the embedding, reads rows of zeros after the vocabulary.
  if constexpr (kType == DType::kBf16)
    Reserve(image_, layout_.elements + (stride_ - rules_.row_width) * config.width, "weights in bf16");
  if (rules_.of_tokens)
    Reserve(tokens_, Rows(), "batch");
  else
    Reserve(images_, samples() * rules_.inputs_per_sample, "batch");
  Reserve(targets_, Rows(), "batch");
  Reserve(logits_, chunk_rows_ * stride_, "logits");
  Reserve(losses_, Rows(), "loss");
  Reserve(weights_, Rows(), "loss");
  Reserve(hits_, Rows(), "loss");
  Reserve(per_sample_, samples(), "loss");
  Reserve(sums_, 1, "loss");
}

template <class T>
Status DeviceModel<T>::Start() {
  // Measurements need memory temporarily, so they run before the memory of the model is allocated.
  seconds_.resize(matmul_costs_.size());
  for (const auto& [shape, index] : index_) {
    RM_TRY(algorithms_.gemm.Prepare(shape));
    seconds_[index] = algorithms_.gemm.Milliseconds(shape) / 1000;
  }
  RM_TRY(PlanMore());
  RM_TRY(plan_.Allocate());
  return Synchronize(stream_);
}

template <class T>
GemmShape DeviceModel<T>::ForwardShape(int64_t rows, int64_t in, int64_t out, Epilogue epilogue) {
  return {.m = rows, .n = out, .k = in, .in = kType, .out = kType, .epilogue = epilogue};
}
template <class T>
GemmShape DeviceModel<T>::InputGradientShape(int64_t rows, int64_t in, int64_t out, Epilogue epilogue) {
  return {
      .m = rows, .n = in, .k = out, .b_transposed = true, .in = kType, .out = kType, .epilogue = epilogue};
}
template <class T>
GemmShape DeviceModel<T>::WeightGradientShape(int64_t rows, int64_t in, int64_t out) {
  return {.m = in, .n = out, .k = rows, .a_transposed = true, .in = kType, .out = DType::kFloat};
}

template <class T>
const T* DeviceModel<T>::Operand(int64_t offset) const {
  if constexpr (kType == DType::kBf16)
    return image_.get() + offset;
  else
    return params_ + offset;
}

template <class T>
std::vector<typename DeviceModel<T>::Chunk> DeviceModel<T>::Chunks() const {
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < Rows(); begin += chunk_rows_)
    chunks.push_back({begin, std::min(chunk_rows_, Rows() - begin)});
  return chunks;
}

template <class T>
Status DeviceModel<T>::Poll(const std::atomic<bool>* cancel) const {
  if (progress_) progress_();
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
    return Error{Code::kCancelled, "the step was cancelled"};
  return Ok();
}

template <class T>
Status DeviceModel<T>::RunSegment(const std::atomic<bool>* cancel, const std::function<void()>& enqueue) {
  RM_TRY(Poll(cancel));
  RM_ASSIGN(const std::vector<size_t>* const matmuls, segments_.Run(enqueue));
  for (const size_t matmul : *matmuls) {
    ++matmul_costs_[matmul].calls;
    matmul_costs_[matmul].seconds += seconds_[matmul];
  }
  return algorithms_.attention.TakeError();
}

template <class T>
void DeviceModel<T>::Plan(const GemmShape& shape) {
  if (!index_.try_emplace(shape, matmul_costs_.size()).second) return;
  matmul_costs_.push_back({.m = shape.m,
                           .n = shape.n,
                           .k = shape.k,
                           .a_transposed = shape.a_transposed,
                           .b_transposed = shape.b_transposed});
}

template <class T>
Result<typename DeviceModel<T>::StagingBuffer*> DeviceModel<T>::AcquireStagingBuffer() {
  for (const auto& staging : staging_buffers_) {
    if (staging->state == StagingBuffer::State::kAbandoned) {
      RM_ASSIGN(const bool done, staging->done.Query());
      if (done) staging->state = StagingBuffer::State::kFree;
    }
    if (staging->state == StagingBuffer::State::kFree) return staging.get();
  }
  auto staging = std::make_unique<StagingBuffer>();
  if (rules_.of_tokens) {
    RM_ASSIGN(staging->tokens, Pinned<int32_t>::Create(Rows()));
  } else {
    RM_ASSIGN(staging->images, Pinned<float>::Create(samples() * rules_.inputs_per_sample));
  }
  RM_ASSIGN(staging->targets, Pinned<int32_t>::Create(Rows()));
  RM_ASSIGN(staging->sums, Pinned<kernels::LossSums>::Create(1));
  RM_ASSIGN(staging->done, Event::Create());
  staging_buffers_.push_back(std::move(staging));
  return staging_buffers_.back().get();
}

template <class T>
Status DeviceModel<T>::CopyBatch(const Batch& batch, StagingBuffer& staging, bool with_targets) {
  const auto fill = [](const auto& from, const auto& to, auto filler) {
    std::copy(from.begin(), from.end(), to.get());
    std::fill(to.get() + from.size(), to.get() + to.size(), filler);
  };
  // From here on the staging buffer belongs to the device.
  staging.state = StagingBuffer::State::kAbandoned;
  if (rules_.of_tokens) {
    fill(batch.tokens, staging.tokens, 0);
    CopyToDevice(stream_, tokens_.get(), staging.tokens.get(), staging.tokens.bytes());
  } else {
    fill(batch.images, staging.images, 0.0f);
    CopyToDevice(stream_, images_.get(), staging.images.get(), staging.images.bytes());
  }
  fill(with_targets ? batch.targets : std::span<const int32_t>(), staging.targets, -1);
  CopyToDevice(stream_, targets_.get(), staging.targets.get(), staging.targets.bytes());
  staging.done.Record(stream_);
  return Ok();
}

template <class T>
void DeviceModel<T>::SetParams(const Params& params) {
  CHECK(static_cast<int64_t>(params.values.size()) == layout_.elements,
        "params has {} elements, the layout {}", params.values.size(), layout_.elements);
  params_ = params.values.data();
  if constexpr (kType == DType::kBf16) {
    if (params.version != 0 && params.version == image_version_) return;
    kernels::ToBf16(stream_, layout_.elements, params_, image_.get());
    image_version_ = params.version;
  }
}

template <class T>
void DeviceModel<T>::ComputeLoss(const Chunk& chunk, bool with_gradient) {
  const int32_t* targets = targets_.get() + chunk.begin;
  float* losses = losses_.get() + chunk.begin;
  uint8_t* hits = hits_.get() + chunk.begin;
  if (with_gradient)
    kernels::CrossEntropyGradient(stream_, chunk.rows, rules_.row_width, stride_, logits(), targets,
                                  weights_.get() + chunk.begin, losses, hits);
  else
    kernels::CrossEntropy(stream_, chunk.rows, rules_.row_width, stride_, logits(), targets, losses, hits);
}

template <class T>
void DeviceModel<T>::ReduceLosses(StagingBuffer& staging) {
  kernels::SumLosses(stream_, samples(), rules_.rows_per_sample, losses_.get(), hits_.get(), targets_.get(),
                     per_sample_.get(), sums_.get());
  CopyToHost(stream_, staging.sums.get(), sums_.get(), sums_.bytes());
  staging.done.Record(stream_);
}

template <class T>
Status DeviceModel<T>::Enqueue(const Params& params, const Batch& batch, std::span<float> grads,
                               const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) {
  CHECK(static_cast<int64_t>(grads.size()) == layout_.elements, "grads has {} elements, the layout {}",
        grads.size(), layout_.elements);
  RM_TRY(rules_.Check(batch, true));
  engine::BucketNotifier notifier(layout_, on_final);
  if (batch.samples == 0) RM_TRY(Poll(cancel));
  // Zero the whole arena: one fill per gap between tensors would take longer.
  FillZero(stream_, grads.data(), layout_.elements * static_cast<int64_t>(sizeof(float)));
  if (batch.samples == 0) {
    notifier.Final(layout_.elements);
    pending_.push_back(nullptr);
    return Ok();
  }
  RM_ASSIGN(StagingBuffer* const staging, AcquireStagingBuffer());
  RM_TRY(CopyBatch(batch, *staging, true));
  SetParams(params);
  RM_TRY(Begin(grads.data()));
  RM_TRY(Body(cancel));
  kernels::RowWeights(stream_, samples(), rules_.rows_per_sample, targets_.get(), weights_.get());
  for (const Chunk& chunk : Chunks()) {
    RM_TRY(RunSegment(cancel, [&] {
      Head(chunk);
      ComputeLoss(chunk, true);
      HeadBackward(chunk, grads.data());
    }));
  }
  ReduceLosses(*staging);
  RM_TRY(BodyBackward(grads.data(), notifier, cancel));
  notifier.Final(layout_.elements);
  staging->state = StagingBuffer::State::kPending;
  pending_.push_back(staging);
  return Ok();
}

template <class T>
Result<std::vector<Sums>> DeviceModel<T>::Await() {
  // Wait for the last sums, not for the work after them in the stream.
  const std::vector<StagingBuffer*> pending = std::exchange(pending_, {});
  for (StagingBuffer* const staging : pending)
    if (staging != nullptr) staging->state = StagingBuffer::State::kAbandoned;
  const auto last = std::find_if(pending.rbegin(), pending.rend(),
                                 [](StagingBuffer* staging) { return staging != nullptr; });
  if (last != pending.rend()) RM_TRY((*last)->done.Synchronize());
  std::vector<Sums> all;
  for (StagingBuffer* const staging : pending) {
    if (staging == nullptr) {
      all.emplace_back();
      continue;
    }
    const kernels::LossSums& sums = *staging->sums.get();
    all.push_back({.loss = sums.loss, .correct = sums.correct, .predictions = sums.predictions});
    staging->state = StagingBuffer::State::kFree;
  }
  return all;
}

template <class T>
Result<Sums> DeviceModel<T>::ForwardBackward(const Params& params, const Batch& batch, std::span<float> grads,
                                             const std::function<void(int)>& on_final,
                                             const std::atomic<bool>* cancel) {
  CHECK(pending_.empty(), "ForwardBackward between Enqueue and Await");
  RM_TRY(Enqueue(params, batch, grads, on_final, cancel));
  RM_ASSIGN(const std::vector<Sums> sums, Await());
  RM_TRY(Synchronize(stream_));
  return sums.front();
}

template <class T>
Result<Sums> DeviceModel<T>::Evaluate(const Params& params, const Batch& batch) {
  RM_TRY(rules_.Check(batch, true));
  if (batch.samples == 0) return Sums{};
  RM_ASSIGN(StagingBuffer* const staging, AcquireStagingBuffer());
  RM_TRY(CopyBatch(batch, *staging, true));
  SetParams(params);
  RM_TRY(Begin(nullptr));
  RM_TRY(Body(nullptr));
  for (const Chunk& chunk : Chunks()) {
    RM_TRY(RunSegment(nullptr, [&] {
      Head(chunk);
      ComputeLoss(chunk, false);
    }));
  }
  ReduceLosses(*staging);
  RM_TRY(staging->done.Synchronize());
  staging->state = StagingBuffer::State::kFree;
  const kernels::LossSums& sums = *staging->sums.get();
  return Sums{.loss = sums.loss, .correct = sums.correct, .predictions = sums.predictions};
}

template <class T>
Result<std::span<const float>> DeviceModel<T>::Logits(const Params& params, const Batch& batch) {
  RM_TRY(rules_.Check(batch, false));
  const int64_t width = rules_.row_width;
  const int64_t rows = batch.samples * rules_.rows_per_sample;
  host_logits_.resize(static_cast<size_t>(rows * width));
  if (batch.samples > 0) {
    RM_ASSIGN(StagingBuffer* const staging, AcquireStagingBuffer());
    RM_TRY(CopyBatch(batch, *staging, false));
    SetParams(params);
    RM_TRY(segments_.Begin(std::nullopt));
    RM_TRY(Body(nullptr));
    RM_ASSIGN(const auto host, Pinned<T>::Create(logits_.size()));
    for (const Chunk& chunk : Chunks()) {
      RM_TRY(RunSegment(nullptr, [&] { Head(chunk); }));
      CopyToHost(stream_, host.get(), logits(), chunk.rows * stride_ * static_cast<int64_t>(sizeof(T)));
      RM_TRY(Synchronize(stream_));
      for (int64_t r = chunk.begin; r < std::min(rows, chunk.begin + chunk.rows); ++r)
        for (int64_t i = 0; i < width; ++i)
          host_logits_[static_cast<size_t>(r * width + i)] =
              ToFloat(host.get()[(r - chunk.begin) * stride_ + i]);
    }
    staging->state = StagingBuffer::State::kFree;
  }
  return std::span<const float>(host_logits_);
}

template class DeviceModel<float>;
template class DeviceModel<Bf16>;

}  // namespace ringmaster::cuda
