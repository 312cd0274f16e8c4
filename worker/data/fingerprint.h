// SPDX-License-Identifier: Apache-2.0

// Fingerprint computes a number that changes when data changes. Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ringmaster::data {

class Fingerprint {
 public:
  void Add(std::string_view text);
  void Add(int64_t number);
  // Adds the length and a sample of the bytes: both ends, and pieces spaced evenly between them. Reading all
  // of a large file at every start would be too slow.
  void AddSampled(std::span<const std::byte> bytes);
  uint64_t value() const { return value_; }

 private:
  void Mix(std::span<const std::byte> bytes);
  uint64_t value_ = 0;
};

}  // namespace ringmaster::data
