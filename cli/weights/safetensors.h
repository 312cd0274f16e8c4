// SPDX-License-Identifier: Apache-2.0

// The safetensors container: an 8-byte little-endian header length, a JSON header with type, shape and byte
// range of each tensor, then the raw little-endian data. Written aside and renamed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::cli {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;
};

// The header as stored: padded with spaces so that the data begins on a multiple of 8.
std::string SafetensorsHeader(const std::vector<Tensor>& tensors);

// All tensors as F32, in the order given.
Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors);

}  // namespace ringmaster::cli
