// SPDX-License-Identifier: Apache-2.0

// Base class of the GPU models: copies batches to the device and sums back, keeps the parameters in bfloat16,
// computes the loss, and defines the order of a call. T, float or Bf16, is the type of activations.
//
// The head (the last matrix product), the loss and the backward pass of the head run in chunks of rows, so
// that the logits of a large vocabulary never exist as a whole. Images have few classes and one chunk.
//
// Not thread-safe: as engine::Model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/kernels/cross_entropy.h"
#include "worker/compute/cuda/models/graph_segments.h"
#include "worker/compute/cuda/models/model.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/compute/engine/initialise.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/engine/models/batch_rules.h"
#include "worker/compute/engine/models/bucket_notifier.h"
#include "worker/compute/engine/models/tensors.h"

namespace ringmaster::cuda {

template <class T>
class DeviceModel : public engine::Model {
 public:
  const engine::Layout& layout() const final { return layout_; }
  const engine::ModelConfig& config() const final { return config_; }
  void Initialise(uint64_t seed, std::span<float> params, const std::atomic<bool>* cancel) const final {
    engine::InitialiseArena(seed, layout_, initial_, params, config_.threads, cancel);
  }
  void SetProgressHook(std::function<void()> hook) final { progress_ = std::move(hook); }
  const std::vector<engine::MatmulCost>& MatmulCosts() const final { return matmul_costs_; }
  int64_t ActivationBytes() const final { return plan_.bytes(); }

  Result<engine::Sums> ForwardBackward(const engine::Params& params, const engine::Batch& batch,
                                       std::span<float> grads, const std::function<void(int)>& on_final,
                                       const std::atomic<bool>* cancel) final;
  Status Enqueue(const engine::Params& params, const engine::Batch& batch, std::span<float> grads,
                 const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) final;
  Result<std::vector<engine::Sums>> Await() final;
  Result<engine::Sums> Evaluate(const engine::Params& params, const engine::Batch& batch) final;
  Result<std::span<const float>> Logits(const engine::Params& params, const engine::Batch& batch) final;

  // Allocates what the constructor has planned. REQUIRES: called once, before any other method.
  Status Start();

 protected:
  static constexpr DType kType = std::is_same_v<T, float> ? DType::kFloat : DType::kBf16;

  // A range of the rows of predictions.
  struct Chunk {
    int64_t begin = 0;
    int64_t rows = 0;
  };

  DeviceModel(const engine::ModelConfig& config, engine::Tensors tensors, Stream stream,
              const Algorithms& algorithms, const ModelOptions& options);

  // The work of one call on Rows() predictions of samples() samples, in this order: Body, everything before
  // the head; for each chunk Head, which computes logits(), and HeadBackward, once logits() holds the
  // gradient; BodyBackward. The bodies call RunSegment; a chunk is one segment.
  virtual Status Body(const std::atomic<bool>* cancel) = 0;
  virtual void Head(const Chunk& chunk) = 0;
  virtual void HeadBackward(const Chunk& chunk, float* grads) = 0;
  virtual Status BodyBackward(float* grads, engine::BucketNotifier& notifier,
                              const std::atomic<bool>* cancel) = 0;

  // Prepares further operations whose algorithm is chosen by measurement, before memory is allocated.
  virtual Status PlanMore() { return Ok(); }

  // Reports progress, and enqueues the next segment of the call. Errors: kCancelled.
  Status RunSegment(const std::atomic<bool>* cancel, const std::function<void()>& enqueue);

  // Plan: prepares a product when the model starts. Multiply: runs a planned product; called within a
  // segment.
  void Plan(const GemmShape& shape);
  void Multiply(const GemmShape& shape, const GemmOperands& operands) {
    algorithms_.gemm.Run(stream_, shape, operands);
    segments_.Note(index_.at(shape));
  }
  // Shapes of the products of y = x W, with x (rows, in) and W (in, out): x W, d W^T and x^T d.
  static GemmShape ForwardShape(int64_t rows, int64_t in, int64_t out, Epilogue epilogue);
  static GemmShape InputGradientShape(int64_t rows, int64_t in, int64_t out,
                                      Epilogue epilogue = Epilogue::kNone);
  static GemmShape WeightGradientShape(int64_t rows, int64_t in, int64_t out);

  // Plans memory that Start allocates; `part` names it in the out-of-memory message.
  template <class U>
  void Reserve(Buffer<U>& buffer, int64_t size, const char* part) {
    plan_.Reserve(buffer, size, part);
  }

  // Adds memory that was allocated for the model elsewhere to that message.
  void AddAllocated(int64_t bytes, const char* part) { plan_.AddAllocated(bytes, part); }

  int64_t samples() const { return config_.max_samples; }
  int64_t Rows() const { return samples() * rules_.rows_per_sample; }
  Stream stream() const { return stream_; }
  Attention& attention() const { return algorithms_.attention; }
  // Parameters of this call at an offset: the float master weights, and the operands of products (of type T,
  // with zeros after the arena).
  const float* Master(int64_t offset) const { return params_ + offset; }
  const T* Operand(int64_t offset) const;

  // The batch on the device. Shapes: tokens (B, T); images (B, channels, height, width); logits of a chunk
  // (rows, LogitsStride()).
  const int32_t* tokens() const { return tokens_.get(); }
  const float* images() const { return images_.get(); }
  T* logits() const { return logits_.get(); }
  int64_t LogitsStride() const { return stride_; }
  std::vector<Chunk> Chunks() const;

  engine::ModelConfig config_;
  engine::Layout layout_;

 private:
  // Pinned host memory of one batch and its results. It belongs to the device until `done` was reached or
  // the stream was synchronized.
  struct StagingBuffer {
    Pinned<int32_t> tokens, targets;
    Pinned<float> images;
    Pinned<kernels::LossSums> sums;
    Event done;
    enum class State : uint8_t { kFree, kPending, kAbandoned } state = State::kFree;
  };

  // Reports progress. Errors: kCancelled.
  Status Poll(const std::atomic<bool>* cancel) const;
  // Begins a call. Calls with the same parameters, gradients and algorithms enqueue the same work.
  Status Begin(const float* grads) {
    return segments_.Begin(
        GraphSegments::Key{.params = params_, .grads = grads, .algorithms = algorithms_.Version()});
  }
  Result<StagingBuffer*> AcquireStagingBuffer();
  Status CopyBatch(const engine::Batch& batch, StagingBuffer& staging, bool with_targets);
  void SetParams(const engine::Params& params);
  void ComputeLoss(const Chunk& chunk, bool with_gradient);
  void ReduceLosses(StagingBuffer& staging);

  Stream stream_;
  Algorithms algorithms_;
  engine::BatchRules rules_;
  std::vector<engine::Initial> initial_;
  std::function<void()> progress_;
  MemoryPlan plan_;
  std::map<GemmShape, size_t> index_;  // planned products, as indices of matmul_costs_
  std::vector<engine::MatmulCost> matmul_costs_;
  std::vector<double> seconds_;  // measured duration of each
  GraphSegments segments_;

  const float* params_ = nullptr;
  uint64_t image_version_ = 0;
  Buffer<Bf16> image_;  // all parameters, then zeros; empty when T is float

  Buffer<int32_t> tokens_, targets_;
  Buffer<float> images_;
  int64_t stride_;
  int64_t chunk_rows_;
  Buffer<T> logits_;
  Buffer<float> losses_, weights_;
  Buffer<uint8_t> hits_;
  Buffer<kernels::LossSums> per_sample_, sums_;

  std::vector<std::unique_ptr<StagingBuffer>> staging_buffers_;
  std::vector<StagingBuffer*> pending_;  // in the order of Enqueue; null for an empty batch
  std::vector<float> host_logits_;
};

extern template class DeviceModel<float>;
extern template class DeviceModel<Bf16>;

}  // namespace ringmaster::cuda
