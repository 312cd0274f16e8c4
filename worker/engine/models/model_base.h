// What all models share: configuration, layout, initial values, the checks of a batch, and telling the caller
// which buckets are final.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/engine/buffer.h"
#include "worker/engine/exec.h"
#include "worker/engine/initialise.h"
#include "worker/engine/layout_builder.h"
#include "worker/engine/model.h"

namespace ringmaster::engine {

// Announces buckets as backward reaches their ends.
class BucketNotifier {
 public:
  BucketNotifier(const Layout& layout, const std::function<void(int)>& on_final)
      : layout_(layout), on_final_(on_final) {}

  // All gradients before `end` are final.
  void Final(int64_t end) {
    while (next_ < layout_.buckets.size() && layout_.buckets[next_].end <= end) {
      if (on_final_) on_final_(static_cast<int>(next_));
      ++next_;
    }
  }

 private:
  const Layout& layout_;
  const std::function<void(int)>& on_final_;
  size_t next_ = 0;
};

class ModelBase : public Model {
 public:
  const Layout& layout() const override { return layout_; }
  const ModelConfig& config() const override { return config_; }
  void Initialise(uint64_t seed, std::span<float> params) const override {
    InitialiseArena(seed, layout_, initial_, params);
  }
  void SetProgressHook(std::function<void()> hook) override { progress_ = std::move(hook); }
  const std::vector<ProductEffort>& Effort() const override { return exec_.effort(); }
  Result<Sums> ForwardBackward(const Params& params, const Batch& batch, std::span<float> grads,
                               const std::function<void(int)>& on_final,
                               const std::atomic<bool>* cancel) final;
  Sums Evaluate(const Params& params, const Batch& batch) final;
  Result<std::span<const float>> Logits(const Params& params, const Batch& batch) final;

 protected:
  // rows_per_sample: predictions of a sample; row_width: logits of a prediction.
  ModelBase(const ModelConfig& config, int64_t rows_per_sample, int64_t row_width,
            const kernels::Kernels& kernels);

  // Adds a tensor in backward order. Returns its offset.
  int64_t AddParameter(std::string name, std::vector<int64_t> shape, const Initial& initial);

  // A sign of life, and whether to go on.
  Status Poll(const std::atomic<bool>* cancel) const;

  // Fills logits() for the batch, `samples` >= 1.
  virtual Status Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) = 0;
  // logits() hold their gradient. Writes all gradients but the padding.
  virtual Status Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                          const std::atomic<bool>* cancel) = 0;
  virtual int64_t InputsPerSample() const = 0;
  virtual bool TakesTokens() const = 0;

  float* logits() { return logits_.get(); }
  int64_t BaseBytes() const { return logits_.bytes() + losses_.bytes() + weights_.bytes() + hits_.bytes(); }

  ModelConfig config_;
  LayoutBuilder builder_;
  Layout layout_;
  Exec exec_;

 private:
  Status CheckBatch(const Batch& batch, bool with_targets) const;
  Sums Summarise(const Batch& batch) const;
  void Loss(const Batch& batch, bool with_gradient);

  int64_t rows_per_sample_;
  int64_t row_width_;
  std::vector<Initial> initial_;
  std::function<void()> progress_;
  Buffer<float> logits_;
  Buffer<float> losses_;
  Buffer<float> weights_;
  Buffer<uint8_t> hits_;
};

}  // namespace ringmaster::engine
