// SPDX-License-Identifier: Apache-2.0

// The kernels of each instruction set, the scalars of a step and the schedules give one hash, on every CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "worker/compute/optimizer/kernels.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {
namespace {

std::vector<float> Values(uint64_t seed) {
  std::vector<float> values(1003);
  SplitMix64 random(seed);
  for (float& value : values) {
    const double size = random.Uniform() * 2 - 1;
    value = static_cast<float>(std::ldexp(size, -static_cast<int>(random.Below(60))));
  }
  return values;
}

// The constants change only with a formula, and then so do the weights of every run: raise
// numerics/revision.h.
TEST(Optimizer, HashIsTheConstantOfEveryCpu) {
  const std::vector<float> gradient = Values(1), params = Values(2), m = Values(3);
  std::vector<float> v = Values(4);
  for (float& value : v) value = std::fabs(value);
  for (const Kernels& kernels : AvailableKernels()) {
    uint64_t hash = 0;
    for (const int64_t step : {1, 17, 3000}) {
      const StepScalars scalars{.step = step, .learning_rate = 0.003, .gradient_scale = 0.7};
      Config config;
      config.momentum = 0.9;
      config.weight_decay = 0.1;
      std::vector<float> next_params(v.size()), next_m(v.size()), next_v(v.size());
      const auto add = [&] {
        for (const std::vector<float>* const results : {&next_params, &next_m, &next_v})
          hash = hash * 31 + Hash64(std::as_bytes(std::span(*results)));
      };
      kernels.sgd(MakeSgd(config, scalars, true), {gradient, params, m, {}, next_params, next_m, {}});
      add();
      kernels.adamw(MakeAdamW(config, scalars, true), {gradient, params, m, v, next_params, next_m, next_v});
      add();
    }
    EXPECT_EQ(hash, 0x1b12c44c3252a4d5u) << kernels.name << fmt::format(" 0x{:016x}", hash);
  }
}

TEST(Schedule, HashIsTheConstantOfEveryCpu) {
  std::vector<double> rates;
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine})
    for (int64_t step = 1; step <= 1000; ++step)
      rates.push_back(
          Schedule{.kind = kind, .base = 0.004, .final = 0.0001, .warmup_steps = 20, .total_steps = 990}.At(
              step));
  const uint64_t hash = Hash64(std::as_bytes(std::span(rates)));
  EXPECT_EQ(hash, 0x5fde33bf4e2e9770u) << fmt::format("0x{:016x}", hash);
}

}  // namespace
}  // namespace ringmaster::optimizer
