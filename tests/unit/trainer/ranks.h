// SPDX-License-Identifier: Apache-2.0

// Ranks of a job in threads of a test, with real models over the real fabric.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tests/temp_folder.h"
#include "worker/compute/device/host_device.h"
#include "worker/trainer/step.h"
#include "worker/trainer/transfer.h"
#include "worker/trainer/validate.h"

namespace ringmaster::trainer {

inline std::string Words(size_t bytes) {
  static constexpr std::string_view kWords[] = {"ring ",      "master ", "of ",  "many ",
                                                "gradients ", "and ",    "bits "};
  SplitMix64 rng(7);
  std::string text;
  while (text.size() < bytes) text += kWords[rng.Below(std::size(kWords))];
  return text;
}

inline std::string Images(int count) {
  const auto word = [](uint32_t value) {
    return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16),
                       static_cast<char>(value >> 8), static_cast<char>(value)};
  };
  SplitMix64 rng(8);
  std::string out = word(2051) + word(static_cast<uint32_t>(count)) + word(28) + word(28);
  for (int i = 0; i < count * 28 * 28; ++i) out += static_cast<char>(rng.Next());
  return out;
}

inline std::string Labels(int count) {
  SplitMix64 rng(9);
  std::string out{0, 0, 8, 1, 0, 0, static_cast<char>(count >> 8), static_cast<char>(count)};
  for (int i = 0; i < count; ++i) out += static_cast<char>(rng.Below(10));
  return out;
}

inline RunConfig Gpt(TempFolder* folder) {
  RunConfig config;
  config.model = {.kind = engine::ModelKind::kGpt,
                  .layers = 2,
                  .heads = 2,
                  .width = 32,
                  .context = 16,
                  .vocabulary = 256,
                  .max_samples = 2};
  config.data = {.kind = data::Kind::kText,
                 .path = folder->Write("text", Words(4000)),
                 .validation_path = "",
                 .validation_fraction = 0.1,
                 .context = 16};
  config.optimizer.clip_norm = 1.0;
  config.optimizer.weight_decay = 0.1;
  config.schedule = {.kind = optimizer::ScheduleKind::kCosine,
                     .base = 1e-2,
                     .final = 0,
                     .warmup_steps = 2,
                     .total_steps = 30};
  config.samples_per_step = 24;
  config.micro_batches = 12;
  config.steps = 30;
  config.seed = 3;
  return config;
}

inline RunConfig Image(TempFolder* folder, engine::ModelKind kind) {
  folder->Write("train-images-idx3-ubyte", Images(200));
  folder->Write("train-labels-idx1-ubyte", Labels(200));
  folder->Write("t10k-images-idx3-ubyte", Images(50));
  folder->Write("t10k-labels-idx1-ubyte", Labels(50));
  RunConfig config = Gpt(folder);
  config.model = {.kind = kind, .layers = 2, .width = 8, .max_samples = 2};
  config.data = {.kind = data::Kind::kIdx, .path = folder->path(), .validation_path = ""};
  config.optimizer.kind = optimizer::Kind::kSgd;
  return config;
}

struct Outcome {
  uint64_t params = 0;
  uint64_t optimizer = 0;
  std::vector<double> losses;
  double validation = 0;
  bool operator==(const Outcome&) const = default;
};

// One rank with all parts of a trainer process.
struct Rank {
  RunConfig config;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<engine::Model> model;
  std::unique_ptr<TrainState> state;
  std::unique_ptr<Stepper> stepper;
  std::unique_ptr<fabric::Communicator> comm;
  std::atomic<bool> cancel{false};
  Outcome outcome;
  std::vector<rendezvous::StepRecord> records;
  std::unique_ptr<JoinTransfer> join;
  int joining_steps = 0;  // steps during which a member fetched the state

  explicit Rank(const RunConfig& from) : config(from) {
    dataset = OpenData(&config).value();
    fabric = fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}).value();
    device = device::NewHostDevice(config.model.threads);
    model = device->CreateModel(config.model).value();
    state =
        TrainState::Create(device.get(), fabric.get(), model->layout(), config.optimizer.kind, config.exact)
            .value();
    stepper = Stepper::Create({&config, dataset.get(), device.get(), model.get(), fabric.get(), state.get()})
                  .value();
  }
  void Initialise() { ASSERT_TRUE(state->Initialise(*model, config.seed).ok()); }
  void Steps(int64_t until) {
    while (state->step() < until) {
      if (join != nullptr && !join->done()) ++joining_steps;
      const auto result = stepper->Run(
          {comm.get()}, &cancel, [] { return false; }, join.get());
      ASSERT_TRUE(result.ok()) << result.error().message;
      outcome.losses.push_back(result->loss);
    }
    outcome.params = state->ParamsHash().value();
    outcome.optimizer = state->OptimizerHash().value();
  }
  Result<Validation> Validated(agent::TrainerPage* page = nullptr) {
    return Validate(config, *dataset, model.get(), {state->current().params, state->version()}, comm.get(),
                    &cancel, page, join.get());
  }
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

inline void OnAll(Ranks* ranks, const std::function<void(Rank*)>& work) {
  std::vector<std::thread> threads;
  for (auto& rank : *ranks) threads.emplace_back([&work, &rank] { work(rank.get()); });
  for (auto& thread : threads) thread.join();
}

inline void Connect(Ranks* ranks, uint64_t generation) {
  std::vector<std::string> addresses;
  for (auto& rank : *ranks) {
    rank->comm.reset();
    addresses.push_back(rank->fabric->Address());
  }
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks->size(); ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = *(*ranks)[r];
      rank.comm = rank.fabric->Connect({generation, static_cast<int>(r), addresses}).value();
    });
  }
  for (auto& thread : threads) thread.join();
}

inline Outcome Train(const RunConfig& config, int world, int64_t steps) {
  Ranks ranks;
  for (int r = 0; r < world; ++r) ranks.push_back(std::make_unique<Rank>(config));
  Connect(&ranks, 1);
  OnAll(&ranks, [&](Rank* rank) {
    if (rank->comm->rank() == 0) rank->Initialise();
    const std::vector<int32_t> sources = {0};
    ASSERT_TRUE(ShareState(rank->comm.get(), sources, rank->state.get(), &rank->records).ok());
    rank->Steps(steps);
    const auto validation = rank->Validated();
    ASSERT_TRUE(validation.ok());
    rank->outcome.validation = validation->loss;
  });
  for (const auto& rank : ranks) EXPECT_EQ(rank->outcome, ranks[0]->outcome) << "rank " << rank->comm->rank();
  return ranks[0]->outcome;
}

}  // namespace ringmaster::trainer
