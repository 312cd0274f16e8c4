// SPDX-License-Identifier: Apache-2.0

// Base class of the CPU models: configuration, layout, initial values, validation of batches, and the loss.
// Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/compute/engine/buffer.h"
#include "worker/compute/engine/exec.h"
#include "worker/compute/engine/initialise.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/engine/models/batch_rules.h"
#include "worker/compute/engine/models/bucket_notifier.h"
#include "worker/compute/engine/models/tensors.h"

namespace ringmaster::engine {

class ModelBase : public Model {
 public:
  const Layout& layout() const override { return layout_; }
  const ModelConfig& config() const override { return config_; }
  void Initialise(uint64_t seed, std::span<float> params, const std::atomic<bool>* cancel) const override {
    InitialiseArena(seed, layout_, initial_, params, config_.threads, cancel);
  }
  void SetProgressHook(std::function<void()> hook) override { progress_ = std::move(hook); }
  const std::vector<MatmulCost>& MatmulCosts() const override { return exec_.matmul_costs(); }
  Result<Sums> ForwardBackward(const Params& params, const Batch& batch, std::span<float> grads,
                               const std::function<void(int)>& on_final,
                               const std::atomic<bool>* cancel) final;
  Status Enqueue(const Params& params, const Batch& batch, std::span<float> grads,
                 const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) final;
  Result<std::vector<Sums>> Await() final { return std::exchange(pending_, {}); }
  Result<Sums> Evaluate(const Params& params, const Batch& batch) final;
  Result<std::span<const float>> Logits(const Params& params, const Batch& batch) final;

 protected:
  ModelBase(const ModelConfig& config, Tensors tensors, const kernels::Kernels& kernels);

  // Reports progress. Errors: kCancelled.
  Status Poll(const std::atomic<bool>* cancel) const;

  // Writes logits(), shape (rows, row width). REQUIRES: batch.samples >= 1.
  virtual Status Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) = 0;
  // Writes all gradients except the padding. REQUIRES: logits() holds the gradient of the logits.
  virtual Status Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                          const std::atomic<bool>* cancel) = 0;

  float* logits() { return logits_.get(); }
  int64_t BaseBytes() const { return logits_.bytes() + losses_.bytes() + weights_.bytes() + hits_.bytes(); }

  ModelConfig config_;
  Layout layout_;
  Exec exec_;

 private:
  Sums Summarise(const Batch& batch) const;
  void Loss(const Batch& batch, bool with_gradient);

  BatchRules rules_;
  int64_t rows_per_sample_;
  int64_t row_width_;
  std::vector<Initial> initial_;
  std::function<void()> progress_;
  std::vector<Sums> pending_;  // results of Enqueue until Await
  Buffer<float> logits_;
  Buffer<float> losses_;
  Buffer<float> weights_;
  Buffer<uint8_t> hits_;
};

}  // namespace ringmaster::engine
