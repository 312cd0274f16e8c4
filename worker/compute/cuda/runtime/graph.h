// SPDX-License-Identifier: Apache-2.0

// Work of a stream that was recorded once and is given to it again as one: a CUDA graph. What was recorded
// keeps its arguments, addresses included; only what memory holds may differ from one time to the next.
// Move-only.
//
// Thread rule: that of the stream.
#pragma once

#include <functional>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream.h"

struct CUgraphExec_st;

namespace ringmaster::cuda {

class Graph {
 public:
  // Keeps what `enqueue` gives to `stream`, none of which happens. It must not wait for the device, take
  // memory or use events.
  static Result<Graph> Record(Stream stream, const std::function<void()>& enqueue);
  Graph() = default;
  // Nothing of it may be under way.
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  // Enqueues all of it.
  void Launch(Stream stream) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace ringmaster::cuda
