// SPDX-License-Identifier: Apache-2.0

// What all models of the GPU share: the batch's way to the device and its sums' way back, the parameters in
// bfloat16, the loss, and the order of a call. T, float or Bf16, is what activations are kept in.
//
// The last matrix product, the head, is made, judged and taken back in chunks of rows, so that the logits of
// a large vocabulary never exist as a whole. Images, whose classes are few, have one chunk.
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
  void Initialise(uint64_t seed, std::span<float> params) const final {
    engine::InitialiseArena(seed, layout_, initial_, params);
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

  // Takes what the constructor has planned. Once, before all else.
  Status Start();

 protected:
  static constexpr DType kType = std::is_same_v<T, float> ? DType::kFloat : DType::kBf16;

  // A piece of all rows of predictions.
  struct Chunk {
    int64_t begin = 0;
    int64_t rows = 0;
  };

  DeviceModel(const engine::ModelConfig& config, engine::Tensors tensors, Stream stream,
              const Algorithms& algorithms, const ModelOptions& options);

  // The work of one call, on Rows() predictions of samples() samples, in this order: all up to the head; the
  // logits of each chunk; and, when they hold their gradient, the head's own gradients of each chunk, the
  // rest. The two bodies go by pieces, the heads are within one.
  virtual Status Body(const std::atomic<bool>* cancel) = 0;
  virtual void Head(const Chunk& chunk) = 0;
  virtual void HeadBackward(const Chunk& chunk, float* grads) = 0;
  virtual Status BodyBackward(float* grads, engine::BucketNotifier& notifier,
                              const std::atomic<bool>* cancel) = 0;

  // Makes known, before memory is taken, what else has an algorithm that is chosen.
  virtual Status PlanMore() { return Ok(); }

  // Gives the next piece of the call to the device, unless it was cancelled; and a sign of life.
  Status RunSegment(const std::atomic<bool>* cancel, const std::function<void()>& enqueue);

  // Makes a product known when the model starts; then it is run by the same words, within a piece.
  void Plan(const GemmShape& shape);
  void Multiply(const GemmShape& shape, const GemmOperands& operands) {
    algorithms_.gemm.Run(stream_, shape, operands);
    segments_.Note(index_.at(shape));
  }
  // x W of `rows` rows, W [in, out] at an offset of the parameters; d W^T; and x^T d. Plan and run.
  static GemmShape ForwardShape(int64_t rows, int64_t in, int64_t out, Epilogue epilogue);
  static GemmShape InputGradientShape(int64_t rows, int64_t in, int64_t out,
                                      Epilogue epilogue = Epilogue::kNone);
  static GemmShape WeightGradientShape(int64_t rows, int64_t in, int64_t out);

  // Memory that Start takes; `part` is what the arithmetic of a refusal calls it.
  template <class U>
  void Take(Buffer<U>& buffer, int64_t size, const char* part) {
    plan_.Take(buffer, size, part);
  }

  // Memory that others have taken for the model, and that a refusal has to name.
  void Mention(int64_t bytes, const char* part) { plan_.Mention(bytes, part); }

  int64_t samples() const { return config_.max_samples; }
  int64_t Rows() const { return samples() * rules_.rows_per_sample; }
  Stream stream() const { return stream_; }
  Attention& attention() const { return algorithms_.attention; }
  // Parameters of this call, as masters and as what products take. The latter have zeros behind the arena.
  const float* Master(int64_t offset) const { return params_ + offset; }
  const T* Operand(int64_t offset) const;

  // The batch on the device: tokens or images, and the logits of a chunk, whose rows lie `stride` apart.
  const int32_t* tokens() const { return tokens_.get(); }
  const float* images() const { return images_.get(); }
  T* logits() const { return logits_.get(); }
  int64_t LogitsStride() const { return stride_; }
  std::vector<Chunk> Chunks() const;

  engine::ModelConfig config_;
  engine::Layout layout_;

 private:
  // One batch on its way. Its pinned memory is the device's until `read`, or until the stream was waited for.
  struct StagingBuffer {
    Pinned<int32_t> tokens, targets;
    Pinned<float> images;
    Pinned<kernels::LossSums> sums;
    Event done;
    enum class State : uint8_t { kFree, kPending, kAbandoned } state = State::kFree;
  };

  // A sign of life, and whether to go on.
  Status Poll(const std::atomic<bool>* cancel) const;
  // A call begins whose work is that of every other one with these spans.
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
  std::map<GemmShape, size_t> index_;  // of planned products, into matmul_costs_
  std::vector<engine::MatmulCost> matmul_costs_;
  std::vector<double> seconds_;  // of a call of each, when it was measured
  GraphSegments segments_;

  const float* params_ = nullptr;
  uint64_t image_version_ = 0;
  Buffer<Bf16> image_;  // of all parameters, and zeros behind them; empty when T is float

  Buffer<int32_t> tokens_, targets_;
  Buffer<float> images_;
  int64_t stride_;
  int64_t chunk_rows_;
  Buffer<T> logits_;
  Buffer<float> losses_, weights_;
  Buffer<uint8_t> hits_;
  Buffer<kernels::LossSums> per_sample_, sums_;

  std::vector<std::unique_ptr<StagingBuffer>> staging_buffers_;
  std::vector<StagingBuffer*> pending_;  // in the order of their Enqueue; null for a batch of no samples
  std::vector<float> host_logits_;
};

extern template class DeviceModel<float>;
extern template class DeviceModel<Bf16>;

}  // namespace ringmaster::cuda
