// SPDX-License-Identifier: Apache-2.0

// Every fast kernel against its reference, on every instruction set of this CPU, on ragged sizes; and all
// instruction sets against each other, bit for bit.
#include "worker/compute/engine/kernels/kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "tests/unit/engine/fixtures.h"

namespace ringmaster::engine::kernels {
namespace {

using Outputs = std::vector<float>;
using Case = std::function<Outputs(const Kernels&)>;

void ExpectClose(const Outputs& got, const Outputs& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << " element " << i;
}

// The hash of the results of each test, on every CPU. A hash changes only with the kernel, and then so do the
// weights of every run: raise numerics/revision.h.
constexpr std::pair<std::string_view, uint64_t> kHashes[] = {
    {"AddBias", 0x4e743b42860550ee},
    {"StorePanel", 0xa1081e7a20664340},
    {"ColumnSums", 0xe0e75dfa1ccc5c4e},
    {"CausalSoftmax", 0x35c60b9ccff309c4},
    {"RowDots", 0x80341923d0dd0ed2},
    {"ToBf16", 0xece1d0a43eb41622},
    {"PackRowsPackColumnsAndTranspose", 0x8442c89e029a1672},
    {"CrossEntropy", 0x33f8fee06263805d},
    {"Embedding", 0x71ff14f88bc5d5e5},
    {"Gelu", 0xd31092ecc059f25c},
    {"LayerNorm", 0x5407d3f2bf503360},
    {"Convolution", 0xd4bce800a03119a2},
    {"MaxPool", 0xfc297c76a94ec4bb},
    {"Relu", 0x62ece55573f8ba09},
};

class KernelsTest : public testing::Test {
 protected:
  // Runs the case on all tables. The base table must agree with the reference; the others with base exactly.
  void Compare(const Case& run, double tolerance, const std::string& what) {
    const Outputs want = run(ReferenceKernels());
    const Outputs base = run(*KernelsFor("base"));
    ExpectClose(base, want, tolerance, what);
    for (const char* isa : {"avx2", "avx512", "tiles"})
      if (const Kernels* kernels = KernelsFor(isa)) {
        const Outputs other = run(*kernels);
        ASSERT_EQ(std::memcmp(other.data(), base.data(), base.size() * sizeof(float)), 0)
            << what << " " << isa;
      }
    hash_ = hash_ * 31 + Hash64(std::as_bytes(std::span(base)));
  }

  void TearDown() override {
    if (hash_ == 0) return;  // a test that compares nothing
    const std::string_view name = testing::UnitTest::GetInstance()->current_test_info()->name();
    for (const auto& [test, hash] : kHashes)
      if (test == name) {
        EXPECT_EQ(hash_, hash) << fmt::format("{{\"{}\", 0x{:016x}}},", name, hash_);
        return;
      }
    ADD_FAILURE() << "no hash: " << fmt::format("{{\"{}\", 0x{:016x}}},", name, hash_);
  }

 private:
  uint64_t hash_ = 0;
};

const int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 64, 67, 128, 131, 257};

TEST_F(KernelsTest, AddBias) {
  for (const int64_t n : kSizes)
    for (const int parts : {1, 2, 3})
      Compare(
          [&](const Kernels& k) {
            Outputs c = RandomFloats(1, 3 * (n + 2));
            const Outputs bias = RandomFloats(2, n), residual = RandomFloats(3, 3 * (n + 1));
            k.AddBias(3, n, c.data(), n + 2, (parts & 1) != 0 ? bias.data() : nullptr,
                      (parts & 2) != 0 ? residual.data() : nullptr, n + 1);
            return c;
          },
          0, "AddBias n=" + std::to_string(n));
}

TEST_F(KernelsTest, StorePanel) {
  for (const int64_t n : kSizes)
    for (const int parts : {0, 1, 2, 3})
      for (const bool stream : {false, true})
        Compare(
            [&](const Kernels& k) {
              Outputs c(static_cast<size_t>(3 * (n + 2) + 1), 5.0f);
              const Outputs panel = RandomFloats(29, 3 * n), bias = RandomFloats(30, n),
                            residual = RandomFloats(31, 3 * (n + 1));
              k.StorePanel(3, n, panel.data(), n, (parts & 1) != 0 ? bias.data() : nullptr,
                           (parts & 2) != 0 ? residual.data() : nullptr, n + 1, stream, c.data() + 1, n + 2);
              return c;
            },
            0, "StorePanel n=" + std::to_string(n));
}

TEST_F(KernelsTest, ColumnSums) {
  for (const int64_t n : kSizes)
    for (const int64_t rows : {0, 1, 5, 33})
      Compare(
          [&](const Kernels& k) {
            const Outputs x = RandomFloats(4, rows * (n + 3) + 1);
            Outputs sums(static_cast<size_t>(n), 7.0f);
            k.ColumnSums(rows, n, x.data(), n + 3, sums.data());
            return sums;
          },
          0, "ColumnSums");
}

TEST_F(KernelsTest, CausalSoftmax) {
  for (const int64_t keys : kSizes) {
    const int64_t rows = std::min<int64_t>(keys, 9);
    const int64_t first = keys - rows;
    const Outputs scores = RandomFloats(5, rows * keys, 30.0f);
    Compare(
        [&](const Kernels& k) {
          Outputs out = scores;
          Outputs lse(static_cast<size_t>(rows));
          k.CausalSoftmax(rows, keys, first, 0.3f, out.data(), lse.data());
          out.insert(out.end(), lse.begin(), lse.end());
          return out;
        },
        1e-6, "CausalSoftmax");
    Outputs probabilities = scores;
    Outputs lse(static_cast<size_t>(rows));
    KernelsFor("base")->CausalSoftmax(rows, keys, first, 0.3f, probabilities.data(), lse.data());
    Compare(
        [&](const Kernels& k) {
          Outputs s = scores;
          Outputs d = RandomFloats(6, rows * keys);
          const Outputs delta = RandomFloats(7, rows);
          k.CausalSoftmaxBackward(rows, keys, first, 0.3f, lse.data(), delta.data(), s.data(), d.data());
          s.insert(s.end(), d.begin(), d.end());
          return s;
        },
        3e-6, "CausalSoftmaxBackward");
  }
}

TEST_F(KernelsTest, RowDots) {
  for (const int64_t n : kSizes)
    Compare(
        [&](const Kernels& k) {
          const Outputs a = RandomFloats(8, 4 * (n + 1)), b = RandomFloats(9, 4 * (n + 2));
          Outputs dots(4);
          k.RowDots(4, n, a.data(), n + 1, b.data(), n + 2, dots.data());
          return dots;
        },
        2e-6, "RowDots");
}

TEST_F(KernelsTest, ToBf16) {
  Outputs x = RandomFloats(10, 997, 100.0f);
  const float special[] = {0.0f,
                           -0.0f,
                           1e-41f,
                           -1e-41f,
                           3.4e38f,
                           1.00390625f,
                           1.01171875f,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  x.insert(x.end(), std::begin(special), std::end(special));
  Compare(
      [&](const Kernels& k) {
        std::vector<uint16_t> y(x.size());
        k.ToBf16(1, static_cast<int64_t>(x.size()), x.data(), 0, y.data(), 0);
        return Outputs(y.begin(), y.end());
      },
      0, "ToBf16");
}

TEST_F(KernelsTest, PackRowsPackColumnsAndTranspose) {
  const int64_t shapes[][2] = {{1, 1}, {2, 16}, {31, 63}, {32, 64}, {33, 65}, {70, 130}, {129, 17}};
  for (const auto& shape : shapes) {
    const int64_t rows = shape[0];
    const int64_t columns = shape[1];
    const int64_t ld = columns + 3;
    const Outputs x = RandomFloats(31, rows * ld, 50.0f);
    const auto round_up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
    const auto packed = [&](int64_t depth, int64_t across, const auto& call) {
      const int64_t stride = round_up(depth, kStripDepth) * kStripColumns + 64;
      std::vector<uint16_t> y(static_cast<size_t>(round_up(across, kStripColumns) / kStripColumns * stride),
                              7);
      call(y.data(), stride);
      return Outputs(y.begin(), y.end());
    };
    const std::string what = std::to_string(rows) + "x" + std::to_string(columns);
    Compare(
        [&](const Kernels& k) {
          return packed(rows, columns, [&](uint16_t* y, int64_t stride) {
            k.PackRows(rows, columns, x.data(), ld, y, stride);
          });
        },
        0, "PackRows " + what);
    Compare(
        [&](const Kernels& k) {
          return packed(columns, rows, [&](uint16_t* y, int64_t stride) {
            k.PackColumns(columns, rows, x.data(), ld, y, stride);
          });
        },
        0, "PackColumns " + what);
    Compare(
        [&](const Kernels& k) {
          const int64_t ldy = round_up(rows, kStripDepth) + 5;
          std::vector<uint16_t> y(static_cast<size_t>(columns * ldy), 7);
          k.TransposeToBf16(rows, columns, x.data(), ld, y.data(), ldy);
          return Outputs(y.begin(), y.end());
        },
        0, "TransposeToBf16 " + what);
  }
}

TEST_F(KernelsTest, CrossEntropy) {
  for (const int64_t classes : kSizes)
    for (const bool with_gradient : {false, true})
      Compare(
          [&](const Kernels& k) {
            const int64_t rows = 5;
            Outputs logits = RandomFloats(11, rows * classes, 8.0f);
            std::vector<int32_t> targets;
            for (int64_t r = 0; r < rows; ++r)
              targets.push_back(r == 3 ? -1 : static_cast<int32_t>(r * 31 % classes));
            // Equal largest logits: the first wins.
            logits[0] = logits[static_cast<size_t>(classes - 1)] = 9.0f;
            const Outputs weights = {0.5f, 1.0f, 0.25f, 1.0f, 2.0f};
            Outputs losses(5, -1.0f);
            std::vector<uint8_t> hits(5, 9);
            if (with_gradient)
              k.CrossEntropyGradient(rows, classes, logits.data(), targets.data(), weights.data(),
                                     losses.data(), hits.data());
            else
              k.CrossEntropy(rows, classes, logits.data(), targets.data(), losses.data(), hits.data());
            logits.insert(logits.end(), losses.begin(), losses.end());
            logits.insert(logits.end(), hits.begin(), hits.end());
            return logits;
          },
          2e-6, "CrossEntropy classes=" + std::to_string(classes));
}

TEST_F(KernelsTest, CrossEntropyKeepsNotANumber) {
  Outputs logits = {1.0f, std::numeric_limits<float>::quiet_NaN(), 2.0f};
  const int32_t target = 0;
  const float weight = 1;
  float loss = 0;
  uint8_t hit = 0;
  FastKernels().CrossEntropyGradient(1, 3, logits.data(), &target, &weight, &loss, &hit);
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(logits[0]));
}

TEST_F(KernelsTest, Embedding) {
  for (const int64_t width : kSizes) {
    const std::vector<int32_t> tokens = {3, 0, 3, 4, 1, 3};
    Compare(
        [&](const Kernels& k) {
          const Outputs table = RandomFloats(12, 5 * width), positions = RandomFloats(13, 3 * width);
          Outputs out(static_cast<size_t>(4 * width));
          k.EmbeddingForward(4, width, 2, 3, tokens.data() + 2, table.data(), positions.data(), out.data());
          return out;
        },
        0, "EmbeddingForward");
    Compare(
        [&](const Kernels& k) {
          const Outputs d = RandomFloats(14, 6 * width);
          Outputs table = RandomFloats(15, 5 * width);
          Outputs positions(static_cast<size_t>(3 * width), 5.0f);
          k.EmbeddingBackward(6, width, 0, width / 2, tokens.data(), d.data(), table.data());
          k.EmbeddingBackward(6, width, width / 2, width, tokens.data(), d.data(), table.data());
          k.PositionBackward(2, 3, width, 0, 3, d.data(), positions.data());
          table.insert(table.end(), positions.begin(), positions.end());
          return table;
        },
        0, "EmbeddingBackward");
  }
}

TEST_F(KernelsTest, Gelu) {
  Outputs x = RandomFloats(16, 1003, 6.0f);
  for (const float special : {0.0f, -0.0f, 40.0f, -40.0f, 1e-20f, -12.0f}) x.push_back(special);
  const auto n = static_cast<int64_t>(x.size());
  Compare(
      [&](const Kernels& k) {
        Outputs y(x.size());
        k.GeluForward(n, x.data(), y.data());
        Outputs d = RandomFloats(17, n);
        k.GeluBackward(n, x.data(), d.data());
        y.insert(y.end(), d.begin(), d.end());
        return y;
      },
      1e-6, "Gelu");
}

// The documented error of the vector exponential, seen through a soft-max of one key that is far from the
// top.
TEST_F(KernelsTest, ExponentialErrorIsAsDocumented) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const float x = -86.0f * static_cast<float>(i) / 200000.0f;
    float scores[2] = {0, x};
    float d[2] = {0, 0};
    const float lse = 0, delta = 0;
    FastKernels().CausalSoftmaxBackward(1, 2, 1, 1.0f, &lse, &delta, scores, d);
    const double want = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(scores[1] - want) / want);
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_GT(worst, 1e-9);
}

TEST_F(KernelsTest, LayerNorm) {
  for (const int64_t width : kSizes) {
    if (width < 2) continue;
    const int64_t rows = 6;
    const Outputs x = RandomFloats(18, rows * width, 3.0f), gamma = RandomFloats(19, width),
                  beta = RandomFloats(20, width), dy = RandomFloats(21, rows * width);
    Outputs mean(6), rstd(6);
    Compare(
        [&](const Kernels& k) {
          Outputs out(x.size());
          k.LayerNormForward(rows, width, x.data(), gamma.data(), beta.data(), out.data(), mean.data(),
                             rstd.data());
          out.insert(out.end(), mean.begin(), mean.end());
          out.insert(out.end(), rstd.begin(), rstd.end());
          return out;
        },
        3e-6, "LayerNormForward");
    Compare(
        [&](const Kernels& k) {
          Outputs dx = RandomFloats(22, rows * width);
          Outputs d_gamma(static_cast<size_t>(width)), d_beta(static_cast<size_t>(width));
          k.LayerNormBackward(rows, width, dy.data(), x.data(), gamma.data(), mean.data(), rstd.data(),
                              dx.data());
          const int64_t cut = width / 3;
          for (const auto& [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, width}})
            k.LayerNormBackwardParams(rows, width, begin, end, dy.data(), x.data(), mean.data(), rstd.data(),
                                      d_gamma.data(), d_beta.data());
          dx.insert(dx.end(), d_gamma.begin(), d_gamma.end());
          dx.insert(dx.end(), d_beta.begin(), d_beta.end());
          return dx;
        },
        3e-6, "LayerNormBackward");
  }
}

TEST_F(KernelsTest, Convolution) {
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{2, 3}, std::pair{5, 4}, std::pair{7, 8}})
    for (const int64_t channels : {1, 2, 16, 19, 40})
      Compare(
          [&, height = height, width = width](const Kernels& k) {
            const int64_t pixels = height * width;
            Outputs patches(static_cast<size_t>(pixels * 9 * channels), 5.0f);
            k.Patches(height, width, channels, RandomFloats(25, pixels * channels).data(), patches.data());
            Outputs image(static_cast<size_t>(pixels * channels), 5.0f);
            k.PatchesBackward(height, width, channels, RandomFloats(26, pixels * channels * 9).data(),
                              image.data());
            patches.insert(patches.end(), image.begin(), image.end());
            return patches;
          },
          1e-6, "Convolution");
}

TEST_F(KernelsTest, MaxPool) {
  for (const auto& [height, width] : {std::pair{2, 2}, std::pair{3, 5}, std::pair{6, 4}})
    for (const int64_t channels : {1, 3, 16, 21})
      Compare(
          [&, height = height, width = width](const Kernels& k) {
            Outputs image = RandomFloats(27, height * width * channels);
            for (float& value : image) value = std::round(value * 2);  // many equals
            const int64_t n = (height / 2) * (width / 2) * channels;
            Outputs out(static_cast<size_t>(n)), d_image(image.size(), 5.0f);
            std::vector<uint8_t> winner(static_cast<size_t>(n), 77);
            k.MaxPoolForward(height, width, channels, image.data(), out.data(), winner.data());
            k.MaxPoolBackward(height, width, channels, RandomFloats(28, n).data(), winner.data(),
                              d_image.data());
            out.insert(out.end(), winner.begin(), winner.end());
            out.insert(out.end(), d_image.begin(), d_image.end());
            return out;
          },
          0, "MaxPool");
}

TEST_F(KernelsTest, Relu) {
  for (const int64_t n : kSizes)
    Compare(
        [&](const Kernels& k) {
          Outputs y = RandomFloats(23, n);
          Outputs d = RandomFloats(24, n);
          k.ReluForward(n, y.data());
          k.ReluBackward(n, y.data(), d.data());
          y.insert(y.end(), d.begin(), d.end());
          return y;
        },
        0, "Relu");
}

}  // namespace
}  // namespace ringmaster::engine::kernels
