// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine::kernels {
namespace {

TEST(Attention, AgreesWithTheReference) {
  for (const int64_t context : {1, 2, 63, 64, 65, 130, 200})
    for (const int64_t size : {1, 8, 13, 64}) {
      const int64_t ld_qkv = 3 * size + 5;
      const int64_t ld_out = size + 2;
      const std::vector<float> qkv = RandomFloats(1, context * ld_qkv, 1.5f);
      const AttentionHead head{.context = context,
                               .size = size,
                               .ld_qkv = ld_qkv,
                               .ld_out = ld_out,
                               .q = qkv.data(),
                               .k = qkv.data() + size,
                               .v = qkv.data() + 2 * size};
      std::vector<float> out(static_cast<size_t>(context * ld_out)), want = out;
      std::vector<float> lse(static_cast<size_t>(context)), want_lse = lse;
      std::vector<float> scratch(static_cast<size_t>(AttentionScratch(context)), 77.0f);
      AttentionForward(FastKernels(), head, out.data(), lse.data(), scratch.data());
      AttentionForwardReference(head, want.data(), want_lse.data());
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want[i], 3e-6) << context << " " << size;
      for (size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(lse[i], want_lse[i], 1e-5);

      const std::vector<float> d_out = RandomFloats(2, context * ld_out);
      std::vector<float> d(qkv.size(), 3.0f), want_d = d;
      const auto gradients = [&](std::vector<float>& to) {
        return AttentionGradients{.out = want.data(),
                                  .d_out = d_out.data(),
                                  .lse = want_lse.data(),
                                  .d_q = to.data(),
                                  .d_k = to.data() + size,
                                  .d_v = to.data() + 2 * size};
      };
      AttentionBackward(FastKernels(), head, gradients(d), scratch.data());
      AttentionBackwardReference(head, gradients(want_d));
      for (size_t i = 0; i < d.size(); ++i)
        ASSERT_NEAR(d[i], want_d[i], 1e-5 * (1 + std::abs(want_d[i])))
            << context << " " << size << " at " << i;
    }
}

}  // namespace
}  // namespace ringmaster::engine::kernels
