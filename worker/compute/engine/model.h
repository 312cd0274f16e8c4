// SPDX-License-Identifier: Apache-2.0

// A model on one device: forward and backward by hand, as pure functions of (parameters, batch).
//
// Determinism contract: equal parameters and batch give equal bits, whatever the number of threads, the
// alignment of buffers, or what ran before. Work is cut by shape only, never by thread count. Thread rule:
// one thread calls at a time; a Model owns its activations. Parameters and gradients are memory of the
// model's device; batches, logits and the parameters of Initialise are host memory. What is called on_final
// for is final in the order of the device's work: see worker/compute/device/device.h.
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
  int max_samples = 1;  // per call; activations are allocated for this many
  int threads = 1;
  bool operator==(const ModelConfig&) const = default;
};

// The parameters of one call. Equal versions mean equal values (at any address), so that what a model derives
// from them, such as weights in bfloat16, is derived once; version 0 says nothing.
struct Params {
  // NOLINTNEXTLINE(google-explicit-constructor): plain parameters are parameters.
  template <std::convertible_to<std::span<const float>> Plain>
  Params(const Plain& plain) : values(plain) {}
  Params(std::span<const float> plain, uint64_t its_version) : values(plain), version(its_version) {}
  std::span<const float> values;
  uint64_t version = 0;
};

// What one call works on. gpt: tokens and targets are [samples, context]. mlp, cnn: images are
// [samples, channels, height, width] scaled by the dataset, targets [samples]. A target below 0 does not
// count: neither in the loss nor in its mean. Tokens must be below the vocabulary, targets below it or the
// classes.
struct Batch {
  int samples = 0;
  std::span<const int32_t> tokens;
  std::span<const float> images;
  std::span<const int32_t> targets;
};

// Sums over samples of a per-sample mean (gpt: over the tokens that count; images: one prediction), taken in
// sample order in double.
struct Sums {
  double loss = 0;
  int64_t correct = 0;  // arg max equals the target
  int64_t predictions = 0;
  bool operator==(const Sums&) const = default;
};

// What the products of one shape have cost so far (attention's own small ones are not counted): for
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

  // Initial parameters from the seed alone (GPT-2's scheme for gpt; He for the others). Padding is zeroed.
  virtual void Initialise(uint64_t seed, std::span<float> params) const = 0;

  // Gradient of Sums::loss (a sum over samples) into `grads`, which is overwritten, padding zero. on_final(i)
  // is called on the calling thread as soon as bucket i is final, i = 0, 1, ... Returns kCancelled soon after
  // *cancel becomes true (checked at least once per layer); grads are garbage then. batch.samples may be
  // smaller than max_samples, also 0 (grads become 0). kInvalid when a token or target is out of range.
  virtual Result<Sums> ForwardBackward(const Params& params, const Batch& batch, std::span<float> grads,
                                       const std::function<void(int)>& on_final,
                                       const std::atomic<bool>* cancel) = 0;

  // The same for a device that works on its own: Enqueue returns when the work was handed to it, and Await,
  // which waits for them alone, gives the Sums of every Enqueue that succeeded since the last Await, in
  // order. After an error of Await they are forgotten. What is called on_final for is final in the order of
  // the device's work; values of `params` and `grads` may be changed by what is enqueued afterwards.
  virtual Status Enqueue(const Params& params, const Batch& batch, std::span<float> grads,
                         const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) = 0;
  virtual Result<std::vector<Sums>> Await() = 0;

  // Loss alone. Errors as above.
  virtual Result<Sums> Evaluate(const Params& params, const Batch& batch) = 0;

  // Logits of this batch, valid until the next call: gpt [samples, context, vocabulary], the others [samples,
  // classes]. Targets are not looked at. For sampling and tests.
  virtual Result<std::span<const float>> Logits(const Params& params, const Batch& batch) = 0;

  // Called from the calling thread at least once per layer, forward and backward: a sign of life for whoever
  // watches for hangs. Must be quick and must not throw.
  virtual void SetProgressHook(std::function<void()> hook) = 0;

  // Bytes of activations and scratch that this object holds: the arithmetic of docs and of out-of-memory
  // messages.
  virtual int64_t ActivationBytes() const = 0;

  virtual const std::vector<MatmulCost>& MatmulCosts() const = 0;
};

// kInvalid when the configuration is impossible (width not divisible by heads, ...), with field and reason.
Result<std::unique_ptr<Model>> CreateModel(const ModelConfig& config);

}  // namespace ringmaster::engine
