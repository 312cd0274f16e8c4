// SPDX-License-Identifier: Apache-2.0

// The fast loops give the reference's bits, in every instruction set, for any cut and any number of threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "base/rng.h"
#include "tests/unit/numerics/flushing.h"
#include "worker/compute/optimizer/kernels.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {
namespace {

struct Arena {
  explicit Arena(size_t n) : gradient(n), params(n), m(n), v(n), next_params(n), next_m(n), next_v(n) {}

  void Fill(SplitMix64& random) {
    const auto value = [&random] {
      if (random.Chance(0.05)) return 0.0F;
      if (random.Chance(0.02)) return -0.0F;
      if (random.Chance(0.02)) return std::numeric_limits<float>::denorm_min() * 100;
      const double size = std::ldexp(random.Uniform() * 2 - 1, static_cast<int>(random.Below(60)) - 45);
      return static_cast<float>(size);
    };
    for (float& x : gradient) x = value();
    for (float& x : params) x = value();
    for (float& x : m) x = value();
    for (float& x : v) x = std::fabs(value());
  }

  Slices All(Kind kind) {
    Slices s{gradient, params, m, v, next_params, next_m, next_v};
    if (kind == Kind::kSgd) {
      s.state1 = {};
      s.next_state1 = {};
    }
    return s;
  }

  bool SameOutputs(const Arena& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(next_params, other.next_params) && same(next_m, other.next_m) && same(next_v, other.next_v);
  }

  std::vector<float> gradient, params, m, v, next_params, next_m, next_v;
};

Config RandomConfig(SplitMix64& random) {
  Config config;
  config.kind = random.Chance(0.5) ? Kind::kAdamW : Kind::kSgd;
  config.momentum = random.Chance(0.2) ? 0 : 0.9;
  config.beta2 = random.Chance(0.5) ? 0.95 : 0.999;
  config.weight_decay = random.Chance(0.5) ? 0.1 : 0;
  return config;
}

StepScalars RandomScalars(SplitMix64& random) {
  return {.step = 1 + static_cast<int64_t>(random.Below(100000)),
          .learning_rate = random.Uniform() * 0.1,
          .gradient_scale = random.Chance(0.5) ? 1 : random.Uniform()};
}

TEST(Optimizer, EveryInstructionSetEqualsTheReference) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SplitMix64 random(seed);
    const Config config = RandomConfig(random);
    const StepScalars scalars = RandomScalars(random);
    const bool decay = random.Chance(0.5);
    Arena want(random.Below(300));
    want.Fill(random);
    Arena got = want;
    StepReference(config, scalars, decay, want.All(config.kind));
    for (const Kernels& kernels : AvailableKernels()) {
      if (config.kind == Kind::kSgd) {
        kernels.sgd(MakeSgd(config, scalars, decay), got.All(config.kind));
      } else {
        kernels.adamw(MakeAdamW(config, scalars, decay), got.All(config.kind));
      }
      ASSERT_TRUE(got.SameOutputs(want)) << kernels.name << " seed " << seed;
    }
  }
}

// Moments that decay through the smallest normal number, as those of a row that is never updated.
Arena Decayed(SplitMix64& random, size_t n) {
  Arena arena(n);
  const auto tiny = [&random] { return static_cast<float>(std::ldexp(random.Uniform() * 8 - 4, -126)); };
  for (float& x : arena.gradient) x = random.Chance(0.8) ? 0 : tiny() * 0x1p60F;
  for (float& x : arena.params) x = random.Chance(0.5) ? tiny() : 0.5F;
  for (float& x : arena.m) x = tiny();
  for (float& x : arena.v) x = std::fabs(tiny());
  return arena;
}

// A program may flush subnormals to zero; the optimizer computes as on every other device.
TEST(Optimizer, SubnormalsGiveTheBitsOfTheReferenceOnAThreadThatFlushes) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SplitMix64 random(seed);
    const Config config = RandomConfig(random);
    const StepScalars scalars = RandomScalars(random);
    const bool decay = random.Chance(0.5);
    Arena want = Decayed(random, 500);
    Arena got = want;
    StepReference(config, scalars, decay, want.All(config.kind));
    numerics::WhileFlushing([&] { Step(config, scalars, decay, got.All(config.kind)); });
    ASSERT_TRUE(got.SameOutputs(want)) << "seed " << seed;
    for (const Kernels& kernels : AvailableKernels()) {
      if (config.kind == Kind::kSgd) {
        kernels.sgd(MakeSgd(config, scalars, decay), got.All(config.kind));
      } else {
        kernels.adamw(MakeAdamW(config, scalars, decay), got.All(config.kind));
      }
      ASSERT_TRUE(got.SameOutputs(want)) << kernels.name << " seed " << seed;
    }
  }
}

// Otherwise every step would compute with the moments of rows that are never updated at a hundredth of the
// speed.
TEST(Optimizer, MomentsDecayToZeroAndAreNeverStoredAsSubnormals) {
  for (const Kind kind : {Kind::kSgd, Kind::kAdamW}) {
    Config config;
    config.kind = kind;
    config.beta2 = 0.9;
    SplitMix64 random(3);
    Arena arena = Decayed(random, 300);
    std::ranges::fill(arena.gradient, 0.0F);
    for (int64_t step = 1; step <= 40; ++step) {
      Step(config, {.step = step, .learning_rate = 1e-3}, true, arena.All(kind));
      for (const auto* stored : {&arena.next_params, &arena.next_m, &arena.next_v}) {
        for (const float x : *stored) ASSERT_TRUE(x == 0 || std::fabs(x) >= 0x1p-126F) << x;
      }
      arena.params = arena.next_params;
      arena.m = arena.next_m;
      if (kind == Kind::kAdamW) arena.v = arena.next_v;
    }
    EXPECT_EQ(arena.m, std::vector<float>(300, 0.0F));
    if (kind == Kind::kAdamW) {
      EXPECT_EQ(arena.v, std::vector<float>(300, 0.0F));
    }
  }
}

TEST(Optimizer, CurrentStateIsTheUndo) {
  SplitMix64 random(5);
  Arena arena(1000);
  arena.Fill(random);
  const Arena before = arena;
  Step({}, {.step = 3, .learning_rate = 0.1}, true, arena.All(Kind::kAdamW));
  EXPECT_EQ(arena.params, before.params);
  EXPECT_EQ(arena.m, before.m);
  EXPECT_EQ(arena.v, before.v);
  EXPECT_NE(arena.next_params, before.params);
}

engine::Layout MakeLayout(SplitMix64& random, int parameters, int64_t largest) {
  engine::Layout layout;
  for (int i = 0; i < parameters; ++i) {
    engine::Parameter p;
    p.name = fmt::format("p{}", i);
    p.offset = layout.elements;
    p.size = 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(largest)));
    p.shape = {p.size};
    p.decay = random.Chance(0.5);
    layout.elements += (p.size + engine::kBlock - 1) / engine::kBlock * engine::kBlock;
    layout.trainable += p.size;
    layout.parameters.push_back(p);
  }
  layout.buckets = {{0, layout.elements}};
  return layout;
}

TEST(Optimizer, StepAllDoesNotDependOnThreads) {
  SplitMix64 random(11);
  const engine::Layout layout = MakeLayout(random, 40, 120000);  // some 2.4 M elements: four pieces at least
  ASSERT_GT(layout.elements, 2000000);
  for (const Kind kind : {Kind::kSgd, Kind::kAdamW}) {
    Config config;
    config.kind = kind;
    config.weight_decay = 0.1;
    const StepScalars scalars{.step = 7, .learning_rate = 0.01, .gradient_scale = 0.7};
    Arena want(static_cast<size_t>(layout.elements));
    want.Fill(random);
    Arena got = want;
    for (const auto& p : layout.parameters) {
      const auto from = static_cast<size_t>(p.offset);
      const auto n = static_cast<size_t>(p.size);
      Slices s = want.All(kind);
      for (std::span<const float>* in : {&s.gradient, &s.params, &s.state0, &s.state1}) {
        if (!in->empty()) *in = in->subspan(from, n);
      }
      for (std::span<float>* out : {&s.next_params, &s.next_state0, &s.next_state1}) {
        if (!out->empty()) *out = out->subspan(from, n);
      }
      StepReference(config, scalars, p.decay, s);
    }
    for (const int threads : {1, 2, 3, 4, 9}) {
      // Rubbish in the padding of the outputs must be gone afterwards.
      std::fill(got.next_params.begin(), got.next_params.end(), 5.0F);
      StepAll(config, scalars, layout, got.All(kind), threads);
      ASSERT_TRUE(got.SameOutputs(want)) << "threads " << threads;
      // With hashes of the chunks: the same bits.
      std::fill(got.next_params.begin(), got.next_params.end(), 5.0F);
      const Slices slices = got.All(kind);
      std::vector<std::vector<uint64_t>> hashes;
      for (const std::span<float> out : {slices.next_params, slices.next_state0, slices.next_state1})
        hashes.emplace_back(HashChunkCount(out.size_bytes()));
      StepAll(config, scalars, layout, slices, threads, {hashes[0], hashes[1], hashes[2]});
      ASSERT_TRUE(got.SameOutputs(want)) << "threads " << threads;
      for (const std::span<float> out : {slices.next_params, slices.next_state0, slices.next_state1}) {
        std::vector<uint64_t> of_output(HashChunkCount(out.size_bytes()));
        HashChunks(std::as_bytes(out), of_output);
        ASSERT_EQ(hashes.front(), of_output) << "threads " << threads;
        hashes.erase(hashes.begin());
      }
    }
  }
}

TEST(Optimizer, AnyCutGivesTheSameBits) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SplitMix64 random(seed);
    const Config config = RandomConfig(random);
    const StepScalars scalars = RandomScalars(random);
    Arena whole(5000);
    whole.Fill(random);
    Arena cut = whole;
    Step(config, scalars, true, whole.All(config.kind));
    for (size_t at = 0; at < 5000;) {
      const size_t n = std::min<size_t>(1 + random.Below(700), 5000 - at);
      Slices s = cut.All(config.kind);
      for (std::span<const float>* in : {&s.gradient, &s.params, &s.state0, &s.state1}) {
        if (!in->empty()) *in = in->subspan(at, n);
      }
      for (std::span<float>* out : {&s.next_params, &s.next_state0, &s.next_state1}) {
        if (!out->empty()) *out = out->subspan(at, n);
      }
      Step(config, scalars, true, s);
      at += n;
    }
    ASSERT_TRUE(cut.SameOutputs(whole)) << "seed " << seed;
  }
}

TEST(ClipFactor, FollowsTheNorm) {
  EXPECT_EQ(ClipFactor(0, 100), 1);
  EXPECT_EQ(ClipFactor(1, 0.5), 1);
  EXPECT_EQ(ClipFactor(1, 4), 1 / (4 + 1e-6));
  EXPECT_EQ(ClipFactor(1, 0), 1);
}

}  // namespace
}  // namespace ringmaster::optimizer
