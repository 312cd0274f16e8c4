// SPDX-License-Identifier: Apache-2.0

// GEMM on the emulated device: plain loops. There are two algorithms, which the first byte of an algorithm
// identifies: 0 adds in the order of k and is always chosen; 1 adds in the opposite order and can be
// adopted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "tests/cuda/emulation/capture.h"
#include "tests/cuda/runtime/heap.h"
#include "worker/compute/cuda/epilogue.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/gemm_choices.h"
#include "worker/compute/cuda/kernels/bf16.h"

namespace ringmaster::cuda {
namespace {

// Reads an operand of either type as float.
struct Reader {
  const void* data;
  DType type;
  int64_t ld;
  bool transposed;
  float At(int64_t row, int64_t column) const {
    const int64_t at = transposed ? column * ld + row : row * ld + column;
    return type == DType::kBf16 ? ToFloat(static_cast<const Bf16*>(data)[at])
                                : static_cast<const float*>(data)[at];
  }
};

void Write(void* data, DType type, int64_t at, float value) {
  if (type == DType::kBf16)
    static_cast<Bf16*>(data)[at] = RoundToBf16(value);
  else
    static_cast<float*>(data)[at] = value;
}

// gelu(x) = x * Gate(x) with the tanh approximation, and its derivative Slope.
float Gate(float x) { return 1 / (1 + std::exp(-1.5957691216f * (x + 0.044715f * x * x * x))); }
float Slope(float x) {
  return Gate(x) + x * Gate(x) * (1 - Gate(x)) * 1.5957691216f * (1 + 3 * 0.044715f * x * x);
}

int64_t Width(DType type) { return type == DType::kBf16 ? 2 : 4; }

class EmulatedGemm final : public Gemm {
 public:
  EmulatedGemm() : choices_("emulated products"), adopted_(choices_.key()) {}

  Status Prepare(const GemmShape& shape) override {
    if (choices_.Find(shape) != nullptr) return Ok();
    const GemmChoice* const adopted = adopted_.Find(shape);
    choices_.Set(shape, adopted == nullptr ? GemmChoice{} : *adopted);
    return Ok();
  }

  void Run(Stream stream, const GemmShape& s, const GemmOperands& operands) override {
    const GemmChoice* const choice = choices_.Find(s);
    CHECK(stream != nullptr && choice != nullptr, "the GEMM {} x {} x {} was not prepared", s.m, s.n, s.k);
    const bool backwards = choice->algorithm[0] == 1;
    const bool fused = choice->fused || !HasKernel(s.epilogue);
    const GemmShape shape = fused ? s : WithoutEpilogue(s);
    const GemmOperands there = fused ? operands : WithoutEpilogue(s, operands);
    emulation::Give(stream, [=] { Multiply(shape, there, backwards); });
    if (!fused) RunEpilogue(stream, s, operands);
  }

  std::string Choices() const override { return choices_.Text(); }
  Status Adopt(const std::string& text) override {
    RM_ASSIGN(const GemmChoices theirs, GemmChoices::Parse(text, choices_.key()));
    for (const auto& [shape, choice] : theirs.all()) {
      adopted_.Set(shape, choice);
      if (const GemmChoice* const known = choices_.Find(shape);
          known != nullptr && (known->algorithm != choice.algorithm || known->fused != choice.fused)) {
        choices_.Set(shape, choice);
        ++version_;
      }
    }
    return Ok();
  }
  uint64_t Fingerprint() const override { return choices_.Fingerprint(); }
  uint64_t Version() const override { return version_; }
  double Milliseconds(const GemmShape& shape) const override { return choices_.Find(shape)->milliseconds; }
  int64_t WorkspaceBytes() const override { return 0; }

 private:
  static void Multiply(const GemmShape& s, const GemmOperands& operands, bool backwards) {
    const int64_t a_rows = s.a_transposed ? s.k : s.m, a_columns = s.a_transposed ? s.m : s.k;
    const int64_t b_rows = s.b_transposed ? s.n : s.k, b_columns = s.b_transposed ? s.k : s.n;
    const int64_t lda = s.lda == 0 ? a_columns : s.lda;
    const int64_t ldb = s.ldb == 0 ? b_columns : s.ldb;
    const int64_t ldc = s.ldc == 0 ? s.n : s.ldc;
    const auto inside = [](const void* data, int64_t rows, int64_t columns, int64_t ld, DType type) {
      return emulation::InDevice(data, ((rows - 1) * ld + columns) * Width(type)) &&
             reinterpret_cast<uintptr_t>(data) % 256 == 0;
    };
    CHECK(inside(operands.a, a_rows, a_columns, lda, s.in), "A is not in device memory, or not aligned");
    CHECK(inside(operands.b, b_rows, b_columns, ldb, s.in), "B is not in device memory, or not aligned");
    CHECK(inside(operands.c, s.m, s.n, ldc, s.out), "C is not in device memory, or not aligned");
    const bool has_bias = s.epilogue == Epilogue::kBias || s.epilogue == Epilogue::kBiasGelu;
    CHECK(!has_bias || inside(operands.bias, 1, s.n, s.n, s.out), "bias is not in device memory");
    CHECK(
        !HasKernel(s.epilogue) || (inside(operands.aux, s.m, s.n, s.n, s.out) && ldc == s.n && !s.accumulate),
        "aux is not in device memory, or its layout differs from C");
    const Reader a{operands.a, s.in, lda, s.a_transposed};
    const Reader b{operands.b, s.in, ldb, s.b_transposed};
    const Reader bias{operands.bias, s.out, s.n, false};
    const Reader aux{operands.aux, s.out, s.n, false};
    const Reader c{operands.c, s.out, ldc, false};
    // Convert B to row-major float once, so that the compiler vectorises the inner loop.
    std::vector<float> rows(static_cast<size_t>(s.k * s.n));
    for (int64_t k = 0; k < s.k; ++k)
      for (int64_t j = 0; j < s.n; ++j) rows[static_cast<size_t>(k * s.n + j)] = b.At(k, j);
    std::vector<float> sums(static_cast<size_t>(s.n));
    for (int64_t i = 0; i < s.m; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t step = 0; step < s.k; ++step) {
        const int64_t k = backwards ? s.k - 1 - step : step;
        const float left = a.At(i, k);
        const float* right = rows.data() + k * s.n;
        for (int64_t j = 0; j < s.n; ++j) sums[static_cast<size_t>(j)] += left * right[j];
      }
      for (int64_t j = 0; j < s.n; ++j) {
        float value = sums[static_cast<size_t>(j)];
        if (has_bias) value += bias.At(0, j);
        if (s.epilogue == Epilogue::kBiasGelu) {
          Write(operands.aux, s.out, i * s.n + j, value);
          value *= Gate(value);
        }
        if (s.epilogue == Epilogue::kGeluGradient) value *= Slope(aux.At(i, j));
        if (s.accumulate) value += c.At(i, j);
        Write(operands.c, s.out, i * ldc + j, value);
      }
    }
  }

  GemmChoices choices_;
  GemmChoices adopted_;
  uint64_t version_ = 0;
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::Create(const Config&) {
  return std::unique_ptr<Gemm>(std::make_unique<EmulatedGemm>());
}

}  // namespace ringmaster::cuda
