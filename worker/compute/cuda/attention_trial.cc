// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/attention_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/random_matrix.h"

namespace ringmaster::cuda {
namespace {

// An output: rows of values, each row a concatenation of `parts` tensors.
struct Written {
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t row = 0;  // elements
  int64_t parts = 1;
  DType type = DType::kFloat;
};

// Appends the parts of rows [begin, begin + count) to `results`.
Status Add(Stream stream, const Written& written, int64_t begin, int64_t count, AttentionResults& results) {
  const int64_t row_bytes = written.row * BytesOf(written.type);
  RM_ASSIGN(const auto host, Pinned<std::byte>::Create(count * row_bytes));
  CopyToHost(stream, host.get(), written.data + begin * row_bytes, host.bytes());
  RM_TRY(Synchronize(stream));
  const int64_t width = written.row / written.parts;
  for (int64_t part = 0; part < written.parts; ++part) {
    std::vector<float>& values = results.emplace_back();
    values.reserve(static_cast<size_t>(count * width));
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = part * width; c < (part + 1) * width; ++c) {
        const std::byte* const at = host.get() + i * row_bytes + c * BytesOf(written.type);
        Bf16 narrow{};
        float value = 0;
        if (written.type == DType::kBf16) {
          std::memcpy(&narrow, at, sizeof(narrow));
          value = ToFloat(narrow);
        } else {
          std::memcpy(&value, at, sizeof(value));
        }
        values.push_back(value);
      }
  }
  return Ok();
}

}  // namespace

Result<AttentionTrial> AttentionTrial::Create(Stream stream, const AttentionProblem& problem,
                                              int64_t scratch) {
  const int64_t rows = problem.samples * problem.context;
  const int64_t cells = rows * problem.heads * problem.head_size;
  AttentionTrial trial;
  RM_ASSIGN(trial.qkv, RandomMatrix(stream, problem.type, 3 * cells, 1));
  RM_ASSIGN(trial.d_out, RandomMatrix(stream, problem.type, cells, 2));
  RM_ASSIGN(trial.out, Buffer<std::byte>::Create(cells * BytesOf(problem.type)));
  RM_ASSIGN(trial.d_qkv, Buffer<std::byte>::Create(3 * cells * BytesOf(problem.type)));
  RM_ASSIGN(trial.lse, Buffer<float>::Create(rows * problem.heads));
  RM_ASSIGN(trial.scratch, Buffer<float>::Create(scratch));
  return trial;
}

void AttentionTrial::ClearOutputs(Stream stream, AttentionPass pass) const {
  if (pass == AttentionPass::kForward) {
    FillZero(stream, out.get(), out.bytes());
    FillZero(stream, lse.get(), lse.bytes());
  } else {
    FillZero(stream, d_qkv.get(), d_qkv.bytes());
  }
}

Result<AttentionResults> ReadResults(Stream stream, const AttentionProblem& problem, AttentionPass pass,
                                     const AttentionTrial& trial) {
  constexpr int64_t kElements = int64_t{1} << 20;  // enough for a comparison, and fast to copy
  const int64_t rows = problem.samples * problem.context;
  const int64_t width = problem.heads * problem.head_size;
  std::vector<Written> all;
  if (pass == AttentionPass::kForward) {
    all.push_back({trial.out.get(), rows, width, 1, problem.type});
    all.push_back({reinterpret_cast<const std::byte*>(trial.lse.get()), problem.samples * problem.heads,
                   problem.context, 1, DType::kFloat});
  } else {
    all.push_back({trial.d_qkv.get(), rows, 3 * width, 3, problem.type});
  }
  AttentionResults results;
  for (const Written& written : all) {
    const int64_t count = std::clamp(kElements / written.row, int64_t{1}, written.rows);
    RM_TRY(Add(stream, written, 0, count, results));
    if (count < written.rows) RM_TRY(Add(stream, written, written.rows - count, count, results));
  }
  return results;
}

double MaxRelativeError(const AttentionResults& got, const AttentionResults& want) {
  double furthest = 0;
  for (size_t k = 0; k < want.size(); ++k) {
    double off = 0, size = 0;
    for (size_t i = 0; i < want[k].size(); ++i) {
      const double distance = double{got[k][i]} - double{want[k][i]};
      off += distance * distance;
      size += double{want[k][i]} * double{want[k][i]};
    }
    const double relative = std::sqrt(off / (size + 1e-30));
    if (std::isnan(relative)) return std::numeric_limits<double>::quiet_NaN();
    furthest = std::max(furthest, relative);
  }
  return furthest;
}

}  // namespace ringmaster::cuda
