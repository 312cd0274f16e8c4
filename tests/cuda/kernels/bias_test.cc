// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/bias.h"

#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/engine/kernels/bias.h"

namespace ringmaster::cuda::kernels {
namespace {

namespace reference = engine::kernels::reference;

template <class T>
class Bias : public testing::Test {};
TYPED_TEST_SUITE(Bias, ActivationTypes);

TYPED_TEST(Bias, ColumnSumsOfEveryShape) {
  using T = TypeParam;
  for (const int64_t columns : {1, 7, 8, 33, 256, 264, 1025}) {
    for (const int64_t rows : {0, 1, 8, 255, 257, 600}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const std::vector<float> x = RandomIn<T>(rows + columns, rows * columns);
      const auto [got] = InAllOrders([&] {
        const Guarded<T> in(As<T>(x));
        Guarded<float> sums(static_cast<size_t>(columns));
        Guarded<float> scratch(static_cast<size_t>(ColumnSumsScratch(rows, columns)));
        ColumnSums(kStream, rows, columns, in.get(), sums.get(), scratch.get());
        return std::tuple(sums.values());
      });
      std::vector<float> want(static_cast<size_t>(columns));
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r)
          sum += static_cast<double>(x[static_cast<size_t>(r * columns + c)]);
        want[static_cast<size_t>(c)] = static_cast<float>(sum);
      }
      ExpectNear(got, want, 2e-5f, 1e-6f);
    }
  }
}

TEST(ColumnSums, ThreeStagesForVeryManyRows) {
  const int64_t rows = 256 * 256 + 300;
  const std::vector<float> x(static_cast<size_t>(rows), 1.0f);
  const Guarded<float> in(x);
  Guarded<float> sums(1);
  Guarded<float> scratch(static_cast<size_t>(ColumnSumsScratch(rows, 1)));
  ColumnSums(kStream, rows, 1, in.get(), sums.get(), scratch.get());
  EXPECT_EQ(sums.values()[0], static_cast<float>(rows));
}

// A large batch of images has more rows of pixels than the y or z dimension of a grid allows (65535 parts).
TEST(ColumnSums, MorePartsThanTheGridAllowsInY) {
  const int64_t rows = 65535 * 256 + 1;
  const Guarded<Bf16> in(std::vector<Bf16>(static_cast<size_t>(rows), RoundToBf16(1.0f)));
  Guarded<float> sums(1);
  Guarded<float> scratch(static_cast<size_t>(ColumnSumsScratch(rows, 1)));
  ColumnSums(kStream, rows, 1, in.get(), sums.get(), scratch.get());
  EXPECT_EQ(sums.values()[0], static_cast<float>(rows));
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
