// Fully connected layers with ReLU between them, for images taken as flat vectors.
#pragma once

#include <vector>

#include "worker/engine/models/model_base.h"

namespace ringmaster::engine {

class Mlp final : public ModelBase {
 public:
  Mlp(const ModelConfig& config, const kernels::Kernels& kernels);
  int64_t ActivationBytes() const override;

 private:
  struct Dense {
    int64_t in, out;
    int64_t weight, bias;  // offsets; weight is [in, out]
    int64_t end;
  };

  Status Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) override;
  Status Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                  const std::atomic<bool>* cancel) override;
  int64_t InputsPerSample() const override;
  bool TakesTokens() const override { return false; }

  std::vector<Dense> dense_;           // by depth; the last one gives the logits
  std::vector<Buffer<float>> hidden_;  // outputs after ReLU of all but the last
  Buffer<float> d_hidden_[2];          // gradient of a layer's output and of its input, in turn
};

}  // namespace ringmaster::engine
