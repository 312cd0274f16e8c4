// SPDX-License-Identifier: Apache-2.0

// The memory layout of the parameters: one arena of floats with all tensors, in the order in which backward
// finishes their gradients, each padded to a multiple of kBlock. Gradients, master weights and optimizer
// state have the same layout. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::engine {

// Elements per block of the exact numerics. A tensor starts at a multiple of it, so that no block holds
// elements of two tensors.
inline constexpr int64_t kBlock = 1024;

struct Parameter {
  std::string name;  // gpt: the name in Hugging Face's GPT-2, "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in elements, a multiple of kBlock
  int64_t size = 0;    // product of shape; the padding after it stays zero
  bool decay = false;  // weight decay applies: to matrices, not to biases and norms
  bool operator==(const Parameter&) const = default;
};

// A contiguous range of the arena whose gradients become final together, so that its all-reduce can start.
struct Bucket {
  int64_t begin = 0;  // elements, multiples of kBlock
  int64_t end = 0;
  bool operator==(const Bucket&) const = default;
};

struct Layout {
  std::vector<Parameter> parameters;  // by offset
  std::vector<Bucket> buckets;        // cover [0, elements) in order; bucket i is final before bucket i + 1
  int64_t elements = 0;               // including padding; a multiple of kBlock
  int64_t trainable = 0;              // excluding padding
  bool operator==(const Layout&) const = default;
};

}  // namespace ringmaster::engine
