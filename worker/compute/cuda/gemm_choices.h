// SPDX-License-Identifier: Apache-2.0

// The algorithm of every GEMM shape (choice_table.h). An algorithm is an opaque block of bytes of cuBLASLt,
// valid only with the table's key: the model of the GPU and the version of the library.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/cuda/choice_table.h"
#include "worker/compute/cuda/gemm.h"

namespace ringmaster::cuda {

using GemmAlgorithm = std::array<uint8_t, 64>;

struct GemmChoice {
  GemmAlgorithm algorithm{};
  bool fused = true;        // the library runs the epilogue; otherwise a separate kernel follows
  double milliseconds = 0;  // measured duration; 0: not measured
};

class GemmChoices : public ChoiceTable<GemmShape, GemmChoice> {
 public:
  using ChoiceTable::ChoiceTable;

  std::string Text() const;
  // Errors: kInvalid when the text has another key, kCorrupt when it is not a table.
  static Result<GemmChoices> Parse(std::string_view text, std::string_view key);

  // Returns a hash of key, shapes and algorithms, without the measured durations.
  uint64_t Fingerprint() const;
};

}  // namespace ringmaster::cuda
