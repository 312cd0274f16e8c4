// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/models/graph_segments.h"

#include <algorithm>

namespace ringmaster::cuda {
namespace {

// Number of cached keys. Parameters have two images, and a step and an evaluation have different work.
constexpr size_t kCalls = 6;

}  // namespace

Status GraphSegments::Begin(const std::optional<Key>& key) {
  current_ = nullptr;
  next_ = 0;
  if (!record_ || !key) return Ok();
  const auto known = std::ranges::find(calls_, *key, &Call::key);
  if (known != calls_.end()) {
    calls_.splice(calls_.begin(), calls_, known);
  } else {
    if (calls_.size() == kCalls) {
      RM_TRY(Synchronize(stream_));  // a running graph must not be destroyed
      calls_.pop_back();
    }
    calls_.push_front({.key = *key, .segments = {}});
  }
  current_ = &calls_.front();
  return Ok();
}

Result<const std::vector<size_t>*> GraphSegments::Run(const std::function<void()>& enqueue) {
  if (current_ == nullptr) {
    unrecorded_.clear();
    notes_ = &unrecorded_;
    enqueue();
    return notes_;
  }
  if (next_ == current_->segments.size()) current_->segments.emplace_back();
  Segment& segment = current_->segments[next_++];
  if (!segment.graph) {
    segment.notes.clear();
    notes_ = &segment.notes;
    if (!segment.enqueued) {
      enqueue();
      segment.enqueued = true;
      return notes_;
    }
    RM_ASSIGN(segment.graph, Graph::Record(stream_, enqueue));
  }
  segment.graph->Launch(stream_);
  return &segment.notes;
}

}  // namespace ringmaster::cuda
