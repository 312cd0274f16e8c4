// SPDX-License-Identifier: Apache-2.0

// Builds a Layout from tensors that are added in the order in which backward finishes their gradients.
#pragma once

#include <string>
#include <vector>

#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

class LayoutBuilder {
 public:
  // Groups are merged until a bucket has kSmallBucket elements, so that a message is worth its latency. A
  // group larger than kLargeBucket is divided, so that the all-reduces of its parts overlap.
  static constexpr int64_t kSmallBucket = 64 * 1024;
  static constexpr int64_t kLargeBucket = 8 * 1024 * 1024;

  // Adds a tensor and returns its offset in the arena. Tensors of two or more dimensions get weight decay.
  int64_t Add(std::string name, std::vector<int64_t> shape);
  // Declares that the tensors added since the last call become final together.
  void EndGroup();
  Layout Finish();

 private:
  Layout layout_;
  int64_t bucket_begin_ = 0;
};

}  // namespace ringmaster::engine
