// SPDX-License-Identifier: Apache-2.0

// The kernels of convolutional networks: patches and pooling.
#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/cuda/kernels/conv.h"
#include "worker/compute/cuda/kernels/maxpool.h"
#include "worker/compute/engine/kernels/conv.h"
#include "worker/compute/engine/kernels/maxpool.h"

namespace ringmaster::cuda::kernels {
namespace {

namespace reference = engine::kernels::reference;

template <class T>
class Images : public testing::Test {};
TYPED_TEST_SUITE(Images, ActivationTypes);

const std::vector<ImageShape> kShapes = {{0, 4, 4, 3}, {1, 1, 1, 1}, {2, 2, 3, 1},
                                         {3, 5, 7, 5}, {2, 6, 5, 8}, {1, 7, 9, 24}};

int64_t Size(const ImageShape& s) { return s.samples * s.height * s.width * s.channels; }

std::string Name(const ImageShape& s) {
  return testing::PrintToString(std::vector<int64_t>{s.samples, s.height, s.width, s.channels});
}

TYPED_TEST(Images, PatchesAndTheirGradientEqualTheReference) {
  using T = TypeParam;
  for (const ImageShape& s : kShapes) {
    SCOPED_TRACE(Name(s));
    const std::vector<float> x = RandomIn<T>(1, Size(s));
    const std::vector<float> d = RandomIn<T>(2, 9 * Size(s));
    const auto [patches, gradient] = InAllOrders([&] {
      const Guarded<T> in(As<T>(x)), from(As<T>(d));
      Guarded<T> out(d.size()), back(x.size());
      Patches(kStream, s, in.get(), out.get());
      PatchesBackward(kStream, s, from.get(), back.get());
      return std::tuple(out.values(), back.values());
    });
    std::vector<float> want(d.size());
    std::vector<float> want_gradient(x.size());
    const int64_t image = s.height * s.width * s.channels;
    for (int64_t n = 0; n < s.samples; ++n) {
      reference::Patches(s.height, s.width, s.channels, x.data() + n * image, want.data() + n * 9 * image);
      reference::PatchesBackward(s.height, s.width, s.channels, d.data() + n * 9 * image,
                                 want_gradient.data() + n * image);
    }
    ExpectNear(patches, want, 0, 0);
    ExpectNear(gradient, want_gradient, 1e-6f, Rounding<T>());
  }
}

TYPED_TEST(Images, ChannelsMoveToTheEnd) {
  using T = TypeParam;
  for (const ImageShape& s : kShapes) {
    SCOPED_TRACE(Name(s));
    const std::vector<float> x = RandomIn<T>(1, Size(s));
    const auto [out] = InAllOrders([&] {
      const Guarded<float> in(x);
      Guarded<T> to(x.size());
      ChannelsLast(kStream, s, in.get(), to.get());
      return std::tuple(to.values());
    });
    const int64_t pixels = s.height * s.width;
    for (int64_t n = 0; n < s.samples; ++n)
      for (int64_t c = 0; c < s.channels; ++c)
        for (int64_t p = 0; p < pixels; ++p) {
          ASSERT_EQ(ToFloat(out[static_cast<size_t>((n * pixels + p) * s.channels + c)]),
                    x[static_cast<size_t>((n * s.channels + c) * pixels + p)]);
        }
  }
}

TYPED_TEST(Images, MaxPoolEqualsTheReferenceExactly) {
  using T = TypeParam;
  for (const ImageShape& s : kShapes) {
    SCOPED_TRACE(Name(s));
    std::vector<float> x = RandomIn<T>(1, Size(s));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::round(x[i] * 2);  // produces many equal values
    const ImageShape pooled{s.samples, s.height / 2, s.width / 2, s.channels};
    const std::vector<float> d = RandomIn<T>(2, Size(pooled));
    const auto [out, winner, gradient] = InAllOrders([&] {
      const Guarded<T> in(As<T>(x)), from(As<T>(d));
      Guarded<T> to(d.size()), back(x.size());
      Guarded<uint8_t> cells(d.size());
      MaxPoolForward(kStream, s, in.get(), to.get(), cells.get());
      MaxPoolBackward(kStream, s, from.get(), cells.get(), back.get());
      return std::tuple(to.values(), cells.values(), back.values());
    });
    std::vector<float> want(d.size());
    std::vector<uint8_t> want_winner(d.size());
    std::vector<float> want_gradient(x.size());
    const int64_t image = s.height * s.width * s.channels;
    const int64_t small = pooled.height * pooled.width * pooled.channels;
    for (int64_t n = 0; n < s.samples; ++n) {
      reference::MaxPoolForward(s.height, s.width, s.channels, x.data() + n * image, want.data() + n * small,
                                want_winner.data() + n * small);
      reference::MaxPoolBackward(s.height, s.width, s.channels, d.data() + n * small,
                                 want_winner.data() + n * small, want_gradient.data() + n * image);
    }
    ExpectNear(out, want, 0, 0);
    EXPECT_EQ(winner, want_winner);
    ExpectNear(gradient, want_gradient, 0, 0);
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
