// SPDX-License-Identifier: Apache-2.0

// The work of a call, cut where the host has a word to say (has it been cancelled, is a bucket final). Each
// piece becomes a graph (runtime/graph.h), so that a call costs the host one launch per piece and not one per
// kernel.
//
// A piece is enqueued as it is the first time, which also loads its code, recorded the second time and
// replayed from then on. So what it enqueues must depend on nothing but the key of its call and its place in
// it: all else that changes from call to call is read from device memory.
//
// Thread rule: that of the stream.
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
  // Calls of equal keys enqueue the same.
  struct Key {
    const float* params = nullptr;
    const float* grads = nullptr;
    uint64_t algorithms = 0;  // Algorithms::Version
    bool operator==(const Key&) const = default;
  };

  // Without `record`, pieces are always enqueued as they are.
  GraphSegments(Stream stream, bool record) : stream_(stream), record_(record) {}

  // A call begins; its pieces follow by Run, in order. Without a key none of them is recorded.
  Status Begin(const std::optional<Key>& key);

  // Gives the next piece to the stream. The answer: what the piece has noted.
  Result<const std::vector<size_t>*> Run(const std::function<void()>& enqueue);

  // Called by a piece: remembered with it, and answered again when it is replayed.
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
  std::list<Call> calls_;    // the latest first
  Call* current_ = nullptr;  // null: not to be recorded
  size_t next_ = 0;
  std::vector<size_t> unrecorded_;
  std::vector<size_t>* notes_ = &unrecorded_;
};

}  // namespace ringmaster::cuda
