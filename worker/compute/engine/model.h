// SPDX-License-Identifier: Apache-2.0

// A model on one device: hand-written forward and backward passes as pure functions of (parameters, batch).
// Newcomers start here. models/gpt.h is the model that matters most, kernels/kernels.h has the operations,
// layout.h the memory of the parameters, and worker/compute/device/device.h the device that creates models.
//
// Determinism: equal parameters and batch give equal bits, independent of the number of threads, the
// alignment of buffers and earlier calls. Work is divided by shape only, never by the number of threads.
//
// Memory: parameters and gradients are memory of the model's device. Batches, logits and the parameters of
// Initialise are host memory. The model owns its activations.
//
// Shapes use B for samples, T for the context, C for the width, V for the vocabulary.
//
// Not thread-safe: one thread at a time calls a model.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

enum class ModelKind : uint8_t { kGpt, kMlp, kCnn };
enum class Precision : uint8_t { kFp32, kBf16 };

struct ModelConfig {
  ModelKind kind = ModelKind::kGpt;
  int layers = 4;  // gpt: blocks; mlp: hidden layers; cnn: stages of convolution, ReLU and 2x2 max-pooling
  // gpt
  int heads = 4;
  int width = 128;  // mlp: hidden units; cnn: channels of the first stage (doubled per stage)
  int context = 128;
  int vocabulary = 256;
  // mlp, cnn
  int channels = 1;
  int height = 28;
  int image_width = 28;
  int classes = 10;
  Precision precision = Precision::kFp32;
  int max_samples = 1;  // largest batch; activations are allocated for it
  int threads = 1;
  bool operator==(const ModelConfig&) const = default;
};

// The parameters of one call. Equal versions mean equal values, at any address, so that a model computes
// what it derives from them (weights in bfloat16) once per version. Version 0: unknown, nothing is reused.
struct Params {
  // NOLINTNEXTLINE(google-explicit-constructor): plain parameters are parameters.
  template <std::convertible_to<std::span<const float>> Plain>
  Params(const Plain& plain) : values(plain) {}
  Params(std::span<const float> plain, uint64_t its_version) : values(plain), version(its_version) {}
  std::span<const float> values;  // (layout().elements)
  uint64_t version = 0;
};

// The input of one call. A position with a target below 0 is ignored: it counts neither in the loss nor in
// its mean. REQUIRES: tokens < V, targets < V (gpt) or < classes.
struct Batch {
  int samples = 0;                   // B
  std::span<const int32_t> tokens;   // gpt: (B, T)
  std::span<const float> images;     // mlp, cnn: (B, channels, height, image_width), scaled by the dataset
  std::span<const int32_t> targets;  // gpt: (B, T); mlp, cnn: (B)
};

// Sums over the samples of a batch, added in sample order in double.
struct Sums {
  double loss = 0;      // of the mean cross-entropy of each sample, over its positions that count; in nats
  int64_t correct = 0;  // positions whose arg max equals the target
  int64_t predictions = 0;  // positions that count
  bool operator==(const Sums&) const = default;
};

// What the matrix products of one shape have cost so far, without the small ones of attention. For
// benchmarks.
struct MatmulCost {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  int64_t calls = 0;
  double seconds = 0;
  double Flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(calls);
  }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Layout& layout() const = 0;
  virtual const ModelConfig& config() const = 0;

  // Writes initial parameters, a function of the seed alone (gpt: the scheme of GPT-2; mlp, cnn: He et al.
  // 2015), on config().threads threads. Padding becomes zero. Returns early, with
  // garbage, soon after *cancel becomes true. Thread-safe for different `params`.
  virtual void Initialise(uint64_t seed, std::span<float> params,
                          const std::atomic<bool>* cancel = nullptr) const = 0;

  // Computes the gradient of Sums::loss, a sum over samples, into `grads`, shape (layout().elements); padding
  // becomes zero. Calls on_final(i) on the calling thread as soon as bucket i is final, for i = 0, 1, ... A
  // batch may have fewer samples than max_samples, also 0 (grads become 0). Errors: kCancelled soon after
  // *cancel becomes true, which is checked at least once per layer; grads are garbage then. kInvalid when a
  // token or target is out of range.
  virtual Result<Sums> ForwardBackward(const Params& params, const Batch& batch, std::span<float> grads,
                                       const std::function<void(int)>& on_final,
                                       const std::atomic<bool>* cancel) = 0;

  // The asynchronous form of ForwardBackward. Enqueue returns once the device has the work. A bucket for
  // which on_final was called is final in the order of the device's stream; work enqueued later may change
  // `params` and `grads`.
  virtual Status Enqueue(const Params& params, const Batch& batch, std::span<float> grads,
                         const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) = 0;
  // Returns the Sums of every successful Enqueue since the last Await, in order; blocks only until these are
  // known. An error discards them.
  virtual Result<std::vector<Sums>> Await() = 0;

  // Computes the loss only. Errors: as ForwardBackward.
  virtual Result<Sums> Evaluate(const Params& params, const Batch& batch) = 0;

  // Returns the logits of the batch, valid until the next call. Shape: gpt (B, T, V); mlp, cnn (B, classes).
  // Ignores the targets. For sampling and tests.
  virtual Result<std::span<const float>> Logits(const Params& params, const Batch& batch) = 0;

  // Sets a hook that the calling thread calls at least once per layer, forward and backward, so that the
  // agent can detect a hang. REQUIRES: the hook is fast and does not throw.
  virtual void SetProgressHook(std::function<void()> hook) = 0;

  // Returns the bytes of activations and scratch that this object holds. Documentation and out-of-memory
  // messages use the same arithmetic.
  virtual int64_t ActivationBytes() const = 0;

  virtual const std::vector<MatmulCost>& MatmulCosts() const = 0;
};

// Errors: kInvalid when the configuration is impossible (width not divisible by heads, ...), with the field
// and the reason.
Result<std::unique_ptr<Model>> CreateModel(const ModelConfig& config);

}  // namespace ringmaster::engine
