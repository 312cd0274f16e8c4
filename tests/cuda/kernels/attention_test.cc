// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/attention.h"

#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/engine/kernels/attention.h"

namespace ringmaster::cuda::kernels {
namespace {

template <class T>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, ActivationTypes);

struct Want {
  std::vector<float> out, lse, d_qkv;
};

// The reference, head by head, in double.
Want Reference(const AttentionShape& s, const std::vector<float>& qkv, const std::vector<float>& d_out,
               const std::vector<float>* kept_out) {
  const int64_t width = s.heads * s.head_size;
  Want want{std::vector<float>(d_out.size()),
            std::vector<float>(static_cast<size_t>(s.samples * s.heads * s.context)),
            std::vector<float>(qkv.size())};
  for (int64_t n = 0; n < s.samples; ++n) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t in = n * s.context * 3 * width + h * s.head_size;
      const int64_t to = n * s.context * width + h * s.head_size;
      const engine::kernels::AttentionHead head{.context = s.context,
                                                .size = s.head_size,
                                                .ld_qkv = 3 * width,
                                                .ld_out = width,
                                                .q = qkv.data() + in,
                                                .k = qkv.data() + in + width,
                                                .v = qkv.data() + in + 2 * width};
      float* const lse = want.lse.data() + (n * s.heads + h) * s.context;
      engine::kernels::AttentionForwardReference(head, want.out.data() + to, lse);
      engine::kernels::AttentionBackwardReference(
          head, {.out = (kept_out != nullptr ? kept_out->data() : want.out.data()) + to,
                 .d_out = d_out.data() + to,
                 .lse = lse,
                 .d_q = want.d_qkv.data() + in,
                 .d_k = want.d_qkv.data() + in + width,
                 .d_v = want.d_qkv.data() + in + 2 * width});
    }
  }
  return want;
}

// Returns |got - want| / |want| as vectors.
template <class T>
double RelativeError(const std::vector<T>& got, const std::vector<float>& want) {
  double off = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double value = ToFloat(got[i]);
    off += (value - want[i]) * (value - want[i]);
    size += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(off / (size + 1e-30));
}

template <class T>
void Check(const AttentionShape& s) {
  SCOPED_TRACE(testing::Message() << s.samples << " samples, " << s.heads << " heads of " << s.head_size
                                  << ", context " << s.context);
  const int64_t cells = s.samples * s.context * s.heads * s.head_size;
  const std::vector<float> qkv = RandomIn<T>(static_cast<uint64_t>(cells), 3 * cells, 2);
  const std::vector<float> d_out = RandomIn<T>(static_cast<uint64_t>(cells) + 1, cells);
  const auto [out, lse, d_qkv] = InAllOrders([&] {
    const Guarded<T> in(As<T>(qkv)), d(As<T>(d_out));
    Guarded<T> to(d_out.size()), gradient(qkv.size());
    Guarded<float> sums(static_cast<size_t>(s.samples * s.heads * s.context));
    Guarded<float> scratch(static_cast<size_t>(AttentionBackwardScratch(s)));
    AttentionForward(kStream, s, in.get(), to.get(), sums.get());
    AttentionBackward(kStream, s, in.get(), static_cast<const T*>(to.get()), d.get(),
                      static_cast<const float*>(sums.get()), gradient.get(), scratch.get());
    return std::tuple(to.values(), sums.values(), gradient.values());
  });
  const std::vector<float> kept = Floats(out);
  const Want want = Reference(s, qkv, d_out, &kept);
  // Scores are as large as four times the square root of the head size, and their exponentials amplify the
  // error. In bfloat16, probabilities are rounded before they are multiplied.
  const bool exact = std::is_same_v<T, float>;
  ExpectNear(lse, want.lse, 1e-5f, 1e-5f);
  ExpectNear(out, want.out, exact ? 1e-5f : 0.02f, exact ? 1e-5f : Rounding<T>());
  EXPECT_LT(RelativeError(out, want.out), exact ? 1e-5 : 5e-3);
  EXPECT_LT(RelativeError(d_qkv, want.d_qkv), exact ? 1e-5 : 8e-3);
  ExpectNear(d_qkv, want.d_qkv, exact ? 2e-4f : 0.06f, exact ? 1e-4f : 4 * Rounding<T>());
}

TYPED_TEST(Attention, EveryHeadSize) {
  for (const int64_t size : {8, 13, 16, 24, 32, 40, 64, 80, 128}) {
    Check<TypeParam>({.samples = 1, .heads = 2, .context = 37, .head_size = size});
  }
}

TYPED_TEST(Attention, EveryContext) {
  for (const int64_t context : {1, 2, 31, 32, 33, 63, 64, 65, 127, 130, 200}) {
    Check<TypeParam>({.samples = 2, .heads = 1, .context = context, .head_size = 16});
  }
}

TYPED_TEST(Attention, SeveralTilesOfLargeHeads) {
  Check<TypeParam>({.samples = 1, .heads = 1, .context = 150, .head_size = 64});
  Check<TypeParam>({.samples = 1, .heads = 1, .context = 75, .head_size = 128});
  Check<TypeParam>({.samples = 0, .heads = 3, .context = 75, .head_size = 32});
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
