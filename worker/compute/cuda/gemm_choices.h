// SPDX-License-Identifier: Apache-2.0

// Which algorithm each shape of product uses: a table that goes to a file and to other members of a job as
// text, one line per shape. Knows no device.
//
// An algorithm is an opaque block of bytes of the library that made it, worth something only together with
// the key: the kind of GPU and the library's version.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"

namespace ringmaster::cuda {

using GemmAlgorithm = std::array<uint8_t, 64>;

struct GemmChoice {
  GemmAlgorithm algorithm{};
  bool fused = true;        // the product's epilogue is the library's, not a kernel behind it
  double milliseconds = 0;  // when it was measured; 0 when it was not
};

class GemmChoices {
 public:
  // `key` is one line.
  explicit GemmChoices(std::string key) : key_(std::move(key)) {}

  const std::string& key() const { return key_; }
  const std::map<GemmShape, GemmChoice>& all() const { return choices_; }
  const GemmChoice* Find(const GemmShape& shape) const;
  void Set(const GemmShape& shape, const GemmChoice& choice) { choices_[shape] = choice; }

  std::string Text() const;
  // kInvalid when the text is of another key, kCorrupt when it is no such text.
  static Result<GemmChoices> Parse(std::string_view text, std::string_view key);

  // Of key, shapes and algorithms; not of times.
  uint64_t Fingerprint() const;

 private:
  std::string key_;
  std::map<GemmShape, GemmChoice> choices_;
};

}  // namespace ringmaster::cuda
