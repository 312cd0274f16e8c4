// SPDX-License-Identifier: Apache-2.0

// Where every parameter lives: one arena, tensors in the order in which backward finishes their gradients,
// each padded to a multiple of the exact-numerics block. Gradients, masters and optimizer state share these
// offsets. Value types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringmaster::engine {

// Elements per block of the exact numerics; tensors start on block borders so that no block mixes two
// tensors.
inline constexpr int64_t kBlock = 1024;

struct Parameter {
  std::string name;  // gpt: Hugging Face GPT-2 names, "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in elements, a multiple of kBlock
  int64_t size = 0;    // product of shape; the padding behind it stays zero
  bool decay = false;  // weight decay applies (matrices yes, biases and norms no)
  bool operator==(const Parameter&) const = default;
};

// A contiguous piece of the arena whose gradients become final together; its all-reduce may start then.
struct Bucket {
  int64_t begin = 0;  // elements, multiples of kBlock
  int64_t end = 0;
  bool operator==(const Bucket&) const = default;
};

struct Layout {
  std::vector<Parameter> parameters;  // by offset
  std::vector<Bucket> buckets;        // cover [0, elements) in order; bucket i is final before bucket i + 1
  int64_t elements = 0;               // with padding, a multiple of kBlock
  int64_t trainable = 0;              // without padding
  bool operator==(const Layout&) const = default;
};

}  // namespace ringmaster::engine
