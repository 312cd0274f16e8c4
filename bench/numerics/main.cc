// SPDX-License-Identifier: Apache-2.0

// Trains a small GPT on text with many logical micro-batches, with the step loop of the trainer and one
// worker, and prints the loss of each step as a JSON line. The gradient of one micro-batch of one step may be
// multiplied, as if a sample had gone wrong. bench/numerics/run compares such runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/subnormals.h"
#include "base/time.h"
#include "worker/compute/device/host_device.h"
#include "worker/trainer/step.h"

namespace ringmaster::bench {
namespace {

struct Flags {
  std::string text;
  std::string numerics = "exact";
  int micro_batches = 1024;
  int steps = 300;
  int spike_step = 0;  // counts from 1; 0: none
  int spike_bits = 0;
};

// A model that multiplies its gradient by `factor` in the first micro-batch of one step.
class SpikedModel final : public engine::Model {
 public:
  SpikedModel(std::unique_ptr<engine::Model> model, int step, float factor)
      : model_(std::move(model)), step_(step), factor_(factor) {}

  const engine::Layout& layout() const override { return model_->layout(); }
  const engine::ModelConfig& config() const override { return model_->config(); }
  void Initialise(uint64_t seed, std::span<float> params, const std::atomic<bool>* cancel) const override {
    model_->Initialise(seed, params, cancel);
  }
  Result<engine::Sums> ForwardBackward(const engine::Params& params, const engine::Batch& batch,
                                       std::span<float> grads, const std::function<void(int)>& on_final,
                                       const std::atomic<bool>* cancel) override {
    return model_->ForwardBackward(params, batch, grads, on_final, cancel);
  }
  Status Enqueue(const engine::Params& params, const engine::Batch& batch, std::span<float> grads,
                 const std::function<void(int)>& on_final, const std::atomic<bool>* cancel) override {
    if (params.version != version_) ++steps_;  // a step that is repeated has the same parameters
    version_ = params.version;
    const bool spikes = steps_ == step_ && micro_batch_ == 0;
    ++micro_batch_;
    return model_->Enqueue(
        params, batch, grads,
        [&](int bucket) {
          if (spikes) {
            const engine::Bucket& range = layout().buckets[static_cast<size_t>(bucket)];
            for (int64_t i = range.begin; i < range.end; ++i) grads[static_cast<size_t>(i)] *= factor_;
          }
          on_final(bucket);
        },
        cancel);
  }
  Result<std::vector<engine::Sums>> Await() override {
    micro_batch_ = 0;
    ++attempts_;
    return model_->Await();
  }
  Result<engine::Sums> Evaluate(const engine::Params& params, const engine::Batch& batch) override {
    return model_->Evaluate(params, batch);
  }
  Result<std::span<const float>> Logits(const engine::Params& params, const engine::Batch& batch) override {
    return model_->Logits(params, batch);
  }
  void SetProgressHook(std::function<void()> hook) override { model_->SetProgressHook(std::move(hook)); }
  int64_t ActivationBytes() const override { return model_->ActivationBytes(); }
  const std::vector<engine::MatmulCost>& MatmulCosts() const override { return model_->MatmulCosts(); }

  int attempts() const { return attempts_; }

 private:
  const std::unique_ptr<engine::Model> model_;
  const int step_;
  const float factor_;
  uint64_t version_ = 0;
  int steps_ = 0;
  int micro_batch_ = 0;
  int attempts_ = 0;
};

trainer::RunConfig ConfigOf(const Flags& flags) {
  trainer::RunConfig config;
  config.model = {.kind = engine::ModelKind::kGpt,
                  .layers = 1,
                  .heads = 2,
                  .width = 32,
                  .context = 16,
                  .vocabulary = 256,
                  .max_samples = 1};
  config.data = {.kind = data::Kind::kText,
                 .path = flags.text,
                 .validation_path = "",
                 .validation_fraction = 0.05,
                 .context = config.model.context};
  config.optimizer = {.beta2 = 0.98, .weight_decay = 0.1, .clip_norm = 1};
  config.schedule = {.kind = optimizer::ScheduleKind::kConstant, .base = 1e-3, .warmup_steps = 10};
  config.micro_batches = flags.micro_batches;
  config.samples_per_step = flags.micro_batches;
  config.steps = flags.steps;
  config.exact = flags.numerics != "fast";
  config.wide_sums = flags.numerics == "exact64";
  config.seed = 1;
  return config;
}

Status Train(const Flags& flags) {
  trainer::RunConfig config = ConfigOf(flags);
  RM_ASSIGN(const auto dataset, trainer::OpenData(&config));
  RM_ASSIGN(const auto fabric,
            fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}));
  const auto device = device::NewHostDevice(1);
  RM_ASSIGN(auto model, device->CreateModel(config.model));
  SpikedModel spiked(std::move(model), flags.spike_step, std::ldexp(1.0F, flags.spike_bits));
  RM_ASSIGN(const auto state, trainer::TrainState::Create(device.get(), fabric.get(), spiked.layout(),
                                                          config.optimizer.kind, config.exact));
  RM_ASSIGN(const auto stepper, trainer::Stepper::Create({&config, dataset.get(), device.get(), &spiked,
                                                          fabric.get(), state.get()}));
  RM_ASSIGN(const auto alone, fabric->Connect({1, 0, {fabric->Address()}}));
  RM_TRY(state->Initialise(spiked, config.seed));
  const std::atomic<bool> cancel{false};
  for (int step = 1; step <= flags.steps; ++step) {
    RM_ASSIGN(const trainer::StepResult result, stepper->Run({alone.get()}, &cancel, [] { return false; }));
    fmt::print("{{\"step\": {}, \"loss\": {}, \"gradientNorm\": {}, \"attempts\": {}}}\n", step, result.loss,
               result.gradient_norm, spiked.attempts());
    std::fflush(stdout);
  }
  return Ok();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a small GPT with many micro-batches and prints its losses.");
  app.add_option("--text", flags.text, "text to train on")->required();
  app.add_option("--numerics", flags.numerics)->check(CLI::IsMember({"exact", "exact64", "fast"}));
  app.add_option("--micro-batches", flags.micro_batches)->check(CLI::Range(1, 65536));
  app.add_option("--steps", flags.steps)->check(CLI::PositiveNumber);
  app.add_option("--spike-step", flags.spike_step, "step whose first micro-batch has a spike; 0: none");
  app.add_option("--spike-bits", flags.spike_bits, "the gradient there is multiplied by 2^BITS")
      ->check(CLI::Range(0, 60));
  CLI11_PARSE(app, argc, argv);
  FlushSubnormals();  // as a trainer
  if (const Status status = Train(flags); !status.ok()) {
    fmt::print(stderr, "bench_numerics: {}\n", status.error().message);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) { return ringmaster::bench::Main(argc, argv); }
