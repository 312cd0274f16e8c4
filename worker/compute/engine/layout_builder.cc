// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/layout_builder.h"

#include <algorithm>
#include <utility>

namespace ringmaster::engine {

int64_t LayoutBuilder::Add(std::string name, std::vector<int64_t> shape) {
  Parameter parameter{.name = std::move(name), .shape = std::move(shape), .offset = layout_.elements};
  parameter.size = 1;
  for (const int64_t extent : parameter.shape) parameter.size *= extent;
  parameter.decay = parameter.shape.size() >= 2;
  layout_.elements += (parameter.size + kBlock - 1) / kBlock * kBlock;
  layout_.trainable += parameter.size;
  layout_.parameters.push_back(std::move(parameter));
  return layout_.parameters.back().offset;
}

void LayoutBuilder::EndGroup() {
  if (layout_.elements - bucket_begin_ < kSmallBucket) return;
  while (bucket_begin_ < layout_.elements) {
    const int64_t end = std::min(layout_.elements, bucket_begin_ + kLargeBucket);
    layout_.buckets.push_back({bucket_begin_, end});
    bucket_begin_ = end;
  }
}

Layout LayoutBuilder::Finish() {
  if (bucket_begin_ < layout_.elements) layout_.buckets.push_back({bucket_begin_, layout_.elements});
  bucket_begin_ = layout_.elements;
  return std::move(layout_);
}

}  // namespace ringmaster::engine
