// SPDX-License-Identifier: Apache-2.0

// Builds a Layout from tensors named in the order in which backward finishes their gradients.
#pragma once

#include <string>
#include <vector>

#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

class LayoutBuilder {
 public:
  // Groups are merged until a bucket has this many elements, so that a message is worth its latency; a larger
  // group is cut, so that the sum of its first part runs beside that of the next.
  static constexpr int64_t kSmallBucket = 64 * 1024;
  static constexpr int64_t kLargeBucket = 8 * 1024 * 1024;

  // Returns the tensor's offset in the arena. Weight decay goes to tensors of two and more dimensions.
  int64_t Add(std::string name, std::vector<int64_t> shape);
  // The tensors since the last call become final together.
  void EndGroup();
  Layout Finish();

 private:
  Layout layout_;
  int64_t bucket_begin_ = 0;
};

}  // namespace ringmaster::engine
