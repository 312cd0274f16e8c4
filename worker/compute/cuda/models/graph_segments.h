// SPDX-License-Identifier: Apache-2.0

// The work of a call as a sequence of CUDA graphs. A call is divided into segments where the host acts
// (checks for cancellation, reports a final bucket). Each segment becomes a graph (runtime/graph.h), so that
// the host launches once per segment and not once per kernel.
//
// A segment is enqueued directly the first time, which also loads its code, recorded the second time, and
// replayed from then on. REQUIRES: the work of a segment depends only on the key of its call and on its
// position in the call; everything else that changes between calls is read from device memory.
//
// Not thread-safe: as the stream.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "base/result.h"
#include "worker/compute/cuda/runtime/graph.h"

namespace ringmaster::cuda {

class GraphSegments {
 public:
  // Calls of equal keys enqueue the same work.
  struct Key {
    const float* params = nullptr;
    const float* grads = nullptr;
    uint64_t algorithms = 0;  // Algorithms::Version
    bool operator==(const Key&) const = default;
  };

  // Without `record`, segments are always enqueued directly.
  GraphSegments(Stream stream, bool record) : stream_(stream), record_(record) {}

  // Begins a call, whose segments follow by Run, in order. Without a key no segment is recorded.
  Status Begin(const std::optional<Key>& key);

  // Enqueues or replays the next segment. Returns its notes.
  Result<const std::vector<size_t>*> Run(const std::function<void()>& enqueue);

  // Adds a note to the segment that is being enqueued. Run returns the notes, also when it replays the
  // segment.
  void Note(size_t what) { notes_->push_back(what); }

 private:
  struct Segment {
    bool enqueued = false;
    std::optional<Graph> graph;
    std::vector<size_t> notes;
  };
  struct Call {
    Key key;
    std::vector<Segment> segments;
  };

  Stream stream_;
  bool record_;
  std::list<Call> calls_;    // most recently used first
  Call* current_ = nullptr;  // null: the call is not recorded
  size_t next_ = 0;
  std::vector<size_t> unrecorded_;
  std::vector<size_t>* notes_ = &unrecorded_;
};

}  // namespace ringmaster::cuda
