// SPDX-License-Identifier: Apache-2.0

// A number that changes when data does. Value type, no thread rules.
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
  // The length, and a sample of the bytes: both ends and pieces evenly between them. Reading all of a large
  // file at every start would cost more than it is worth.
  void AddSampled(std::span<const std::byte> bytes);
  uint64_t value() const { return value_; }

 private:
  void Mix(std::span<const std::byte> bytes);
  uint64_t value_ = 0;
};

}  // namespace ringmaster::data
