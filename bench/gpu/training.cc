// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "worker/compute/cuda/cuda_device.h"
#include "worker/trainer/reader.h"

namespace ringmaster::bench {
namespace {

constexpr uint64_t kSeed = 1;

// A tape of random tokens; a sample is a range of it.
class TokenTape final : public data::Dataset {
 public:
  TokenTape(int context, int vocabulary, int64_t samples)
      : samples_(samples),
        shape_{.tokens = true, .context = context},
        tape_(static_cast<size_t>(kTape + context + 1)) {
    SplitMix64 random(kSeed);
    for (int32_t& token : tape_)
      token = static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocabulary)));
  }
  const data::Shape& shape() const override { return shape_; }
  int64_t size(data::Split) const override { return samples_; }
  Status Read(data::Split, std::span<const int64_t> indices, const data::Buffers& out) const override {
    const auto context = static_cast<size_t>(shape_.context);
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto from =
          tape_.begin() + static_cast<int64_t>(KeyedRandom(kSeed, static_cast<uint64_t>(indices[i])) % kTape);
      std::copy_n(from, context, out.tokens.begin() + static_cast<int64_t>(i * context));
      std::copy_n(from + 1, context, out.targets.begin() + static_cast<int64_t>(i * context));
    }
    return Ok();
  }
  uint64_t Fingerprint() const override { return kSeed; }
  Result<data::ContentHash> HashContent(const data::ContentHashOptions& /*options*/) const override {
    return data::ContentHash{};
  }

 private:
  static constexpr int64_t kTape = 4'000'037;  // tokens
  int64_t samples_;
  data::Shape shape_;
  std::vector<int32_t> tape_;
};

std::string_view BytesOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<std::unique_ptr<Training>> Training::Create(const Setup& setup) {
  auto made = std::make_unique<Training>();
  trainer::RunConfig& config = made->config_;
  config.model = setup.model;
  config.optimizer = {.kind = optimizer::Kind::kAdamW, .beta2 = 0.95, .weight_decay = 0.1, .clip_norm = 1.0};
  config.schedule = {.kind = optimizer::ScheduleKind::kConstant, .base = setup.learning_rate};
  config.micro_batches = setup.micro_batches;
  config.samples_per_step = int64_t{setup.model.max_samples} * setup.micro_batches;
  config.steps = std::numeric_limits<int64_t>::max();
  config.exact = setup.exact;
  config.seed = kSeed;
  made->dataset_ =
      std::make_unique<TokenTape>(setup.model.context, setup.model.vocabulary, setup.dataset_samples);
  RM_ASSIGN(made->fabric_,
            fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}));
  RM_ASSIGN(made->device_, cuda::CreateDevice());
  RM_ASSIGN(made->model_, made->device_->CreateModel(config.model));
  RM_ASSIGN(made->state_,
            trainer::TrainState::Create(made->device_.get(), made->fabric_.get(), made->model_->layout(),
                                        config.optimizer.kind, config.exact));
  RM_ASSIGN(made->stepper_,
            trainer::Stepper::Create({&config, made->dataset_.get(), made->device_.get(), made->model_.get(),
                                      made->fabric_.get(), made->state_.get()}));
  RM_ASSIGN(made->alone_, made->fabric_->Connect({1, 0, {made->fabric_->Address()}}));
  RM_TRY(made->state_->Initialise(*made->model_, config.seed));
  return made;
}

Result<trainer::StepResult> Training::Step() {
  return stepper_->Run({alone_.get()}, &cancel_, [] { return false; });
}

Status Training::Write(const std::string& folder, int64_t steps) {
  RM_TRY(MakeFolder(folder));
  RM_ASSIGN(const auto parts, state_->Parts());
  RM_TRY(WriteFileAtomic(folder + "/weights.f32", BytesOf(parts.front().bytes)));
  std::string parameters;
  for (const engine::Parameter& parameter : model_->layout().parameters)
    parameters += fmt::format("{}{{\"name\": \"{}\", \"shape\": [{}], \"offset\": {}, \"decay\": {}}}",
                              parameters.empty() ? "" : ",\n  ", parameter.name,
                              fmt::join(parameter.shape, ", "), parameter.offset, parameter.decay);
  const optimizer::Config& optimizer = config_.optimizer;
  RM_TRY(WriteFileAtomic(
      folder + "/layout.json",
      fmt::format(
          "{{\"learning_rate\": {}, \"beta1\": {}, \"beta2\": {}, \"epsilon\": {}, \"weight_decay\": {}, "
          "\"clip_norm\": {},\n \"parameters\": [\n  {}]}}\n",
          config_.schedule.base, optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay,
          optimizer.clip_norm, parameters)));
  trainer::MicroBatchReader reader(
      *dataset_, {.seed = config_.seed, .max_samples = static_cast<int>(config_.samples_per_step)});
  const int64_t epoch_size = dataset_->size(data::Split::kTrain);
  reader.Start(trainer::TrainingWindows(
      {.samples_per_step = config_.samples_per_step,
       .micro_batches = 1,
       .epoch_size = epoch_size,
       .steps = steps,
       .samples = data::NextStep(data::Cursor{}, config_.samples_per_step, epoch_size),
       .end = 1}));
  std::string tokens;
  for (int64_t step = 0; step < steps; ++step) {
    RM_ASSIGN(const engine::Batch batch, reader.Next(nullptr, nullptr));
    tokens += BytesOf(std::as_bytes(batch.tokens));
    tokens += BytesOf(std::as_bytes(batch.targets));
  }
  return WriteFileAtomic(folder + "/tokens.i32", tokens);
}

}  // namespace ringmaster::bench
