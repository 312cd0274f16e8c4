// SPDX-License-Identifier: Apache-2.0

// The safetensors container: an 8-byte little-endian header length, a JSON header with type, shape and byte
// range of each tensor, then the raw little-endian data. Writes are atomic (a temporary file and a rename).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_counter.h"

namespace ringmaster::cli {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};

// Returns the header as stored, padded with spaces so that the data begins at a multiple of 8.
std::string SafetensorsHeader(const std::vector<Tensor>& tensors);

// Writes all tensors as F32, in the given order. `counter` counts bytes.
Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                        WorkCounter* counter = nullptr);

}  // namespace ringmaster::cli
