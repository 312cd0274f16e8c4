// SPDX-License-Identifier: Apache-2.0

// One step over an arena gives the bits of the CPU, including padding and weight decay.
#include "worker/compute/cuda/kernels/optimizer.h"

#include <cmath>
#include <limits>

#include "tests/cuda/kernels/kernel_test.h"
#include "tests/unit/numerics/flushing.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::cuda::kernels {
namespace {

// Tensors of odd sizes, some of which span several blocks.
engine::Layout OddLayout() {
  engine::Layout layout;
  for (const int64_t size : {1, 1024, 1500, 3, 2048, 777}) {
    layout.parameters.push_back(
        {.name = "p", .shape = {size}, .offset = layout.elements, .size = size, .decay = size % 2 == 1});
    layout.elements += (size + engine::kBlock - 1) / engine::kBlock * engine::kBlock;
    layout.trainable += size;
  }
  return layout;
}

std::vector<float> Values(SplitMix64& random, const engine::Layout& layout, bool positive) {
  std::vector<float> values(static_cast<size_t>(layout.elements));
  for (const engine::Parameter& p : layout.parameters) {
    for (int64_t i = 0; i < p.size; ++i) {
      float value =
          static_cast<float>(std::ldexp(random.Uniform() * 2 - 1, static_cast<int>(random.Below(60)) - 45));
      if (random.Chance(0.05)) value = 0;
      if (random.Chance(0.02)) value = std::numeric_limits<float>::denorm_min() * 100;
      // Moments that decay through the smallest normal number.
      if (random.Chance(0.1)) value = static_cast<float>(std::ldexp(random.Uniform() * 8 - 4, -126));
      values[static_cast<size_t>(p.offset + i)] = positive ? std::fabs(value) : value;
    }
  }
  return values;
}

template <class Scalars, class Make>
Scalars Pair(const Make& make, const optimizer::Config& config, const optimizer::StepScalars& scalars) {
  return {make(config, scalars, false), make(config, scalars, true)};
}

TEST(Optimizer, AStepHasTheBitsOfTheCpu) {
  const engine::Layout layout = OddLayout();
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SplitMix64 random(seed);
    optimizer::Config config;
    config.kind = seed % 2 == 0 ? optimizer::Kind::kAdamW : optimizer::Kind::kSgd;
    config.beta2 = random.Chance(0.5) ? 0.95 : 0.999;
    config.weight_decay = random.Chance(0.7) ? 0.1 : 0;
    const optimizer::StepScalars scalars{.step = 1 + static_cast<int64_t>(random.Below(1000)),
                                         .learning_rate = 3e-3,
                                         .gradient_scale = random.Chance(0.3) ? 1 : random.Uniform()};
    const bool adamw = config.kind == optimizer::Kind::kAdamW;
    const bool in_place = random.Chance(0.5);
    const std::vector<float> g = Values(random, layout, false), p = Values(random, layout, false),
                             m = Values(random, layout, false), v = Values(random, layout, true);

    std::tuple<std::vector<float>, std::vector<float>, std::vector<float>> next;
    // As the communication thread of a trainer, which flushes subnormals to zero. A GPU does not.
    numerics::WhileFlushing([&] {
      next = InAllOrders([&] {
        const Guarded<BlockRule> rules(MakeBlockRules(layout));
        const Guarded<float> gradient(g);
        Guarded<float> params(p), state0(m), state1(v);
        Guarded<float> to_p(p.size()), to_m(p.size()), to_v(p.size());
        Arena arena{.blocks = layout.elements / engine::kBlock,
                    .rules = rules.get(),
                    .gradient = gradient.get(),
                    .params = params.get(),
                    .state0 = state0.get(),
                    .state1 = adamw ? state1.get() : nullptr,
                    .next_params = in_place ? params.get() : to_p.get(),
                    .next_state0 = in_place ? state0.get() : to_m.get(),
                    .next_state1 = !adamw     ? nullptr
                                   : in_place ? state1.get()
                                              : to_v.get()};
        if (adamw) {
          Guarded<AdamWPair> pair(
              std::vector<AdamWPair>{Pair<AdamWPair>(optimizer::MakeAdamW, config, scalars)});
          AdamW(kStream, pair.get(), arena);
        } else {
          Guarded<SgdPair> pair(std::vector<SgdPair>{Pair<SgdPair>(optimizer::MakeSgd, config, scalars)});
          Sgd(kStream, pair.get(), arena);
        }
        return in_place ? std::tuple(params.values(), state0.values(), state1.values())
                        : std::tuple(to_p.values(), to_m.values(), to_v.values());
      });
    });
    const auto& [next_p, next_m, next_v] = next;

    std::vector<float> want_p(p.size()), want_m(p.size()), want_v(p.size());
    optimizer::Slices slices{g, p, m, v, want_p, want_m, want_v};
    if (!adamw) slices.state1 = slices.next_state1 = {};
    optimizer::StepAll(config, scalars, layout, slices, 1);
    ASSERT_TRUE(SameBits(std::tuple(next_p), std::tuple(want_p)));
    ASSERT_TRUE(SameBits(std::tuple(next_m), std::tuple(want_m)));
    ASSERT_TRUE(!adamw || SameBits(std::tuple(next_v), std::tuple(want_v)));
  }
}

// The clip factor equals that of the CPU, and a skipped step writes nothing.
template <class Pair>
void ExpectDecided(double clip_norm, double norm, int32_t contributors) {
  const Guarded<double> at_norm(std::vector<double>{norm});
  const Guarded<int32_t> at_contributors(std::vector<int32_t>{contributors});
  Guarded<Pair> pair(std::vector<Pair>(1));
  DecideUpdate(kStream, {clip_norm, at_norm.get(), at_contributors.get(), 3}, pair.get());
  const Pair got = pair.values()[0];
  const auto factor = static_cast<float>(optimizer::ClipFactor(clip_norm, norm));
  EXPECT_EQ(got.plain.gradient_scale, factor) << clip_norm << " " << norm;
  EXPECT_EQ(got.decayed.gradient_scale, factor);
  EXPECT_EQ(got.skip, contributors == 3 ? 0 : 1);
}

TEST(Optimizer, DecisionEqualsThatOfTheCpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double clip_norm : {0.0, -1.0, 0.3, 1.0, 1e9}) {
    for (const double norm : {0.0, 0.1, 0.3, 1.0, 17.03, 1e30, infinity, std::nan("")}) {
      ExpectDecided<AdamWPair>(clip_norm, norm, 3);
      ExpectDecided<SgdPair>(clip_norm, norm, 2);
    }
  }
  const Guarded<BlockRule> rules(std::vector<BlockRule>{{1024, 0}});
  const Guarded<float> ones(std::vector<float>(engine::kBlock, 1.0f));
  Guarded<float> next(std::vector<float>(engine::kBlock, 7.0f));
  const Arena arena{.blocks = 1,
                    .rules = rules.get(),
                    .gradient = ones.get(),
                    .params = ones.get(),
                    .state0 = ones.get(),
                    .state1 = ones.get(),
                    .next_params = next.get(),
                    .next_state0 = next.get(),
                    .next_state1 = next.get()};
  const Guarded<AdamWPair> adamw(std::vector<AdamWPair>{{{}, {}, 1}});
  AdamW(kStream, adamw.get(), arena);
  const Guarded<SgdPair> sgd(std::vector<SgdPair>{{{}, {}, 1}});
  Sgd(kStream, sgd.get(), arena);
  EXPECT_EQ(next.values(), std::vector<float>(engine::kBlock, 7.0f));
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
