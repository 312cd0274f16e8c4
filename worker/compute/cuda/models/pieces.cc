// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/models/pieces.h"

#include <algorithm>

namespace ringmaster::cuda {
namespace {

// Keys that are remembered: parameters have two images, and a step and an evaluation each have their own
// work.
constexpr size_t kCalls = 6;

}  // namespace

Status Pieces::Begin(const std::optional<Key>& key) {
  current_ = nullptr;
  next_ = 0;
  if (!record_ || !key) return Ok();
  const auto known = std::ranges::find(calls_, *key, &Call::key);
  if (known != calls_.end()) {
    calls_.splice(calls_.begin(), calls_, known);
  } else {
    if (calls_.size() == kCalls) {
      RM_TRY(Synchronise(stream_));  // a graph that is under way must not go
      calls_.pop_back();
    }
    calls_.push_front({.key = *key, .pieces = {}});
  }
  current_ = &calls_.front();
  return Ok();
}

Result<const std::vector<size_t>*> Pieces::Run(const std::function<void()>& enqueue) {
  if (current_ == nullptr) {
    unrecorded_.clear();
    notes_ = &unrecorded_;
    enqueue();
    return notes_;
  }
  if (next_ == current_->pieces.size()) current_->pieces.emplace_back();
  Piece& piece = current_->pieces[next_++];
  if (!piece.graph) {
    piece.notes.clear();
    notes_ = &piece.notes;
    if (!piece.enqueued) {
      enqueue();
      piece.enqueued = true;
      return notes_;
    }
    RM_ASSIGN(piece.graph, Graph::Record(stream_, enqueue));
  }
  piece.graph->Launch(stream_);
  return &piece.notes;
}

}  // namespace ringmaster::cuda
