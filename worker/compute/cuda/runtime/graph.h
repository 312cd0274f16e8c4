// SPDX-License-Identifier: Apache-2.0

// A CUDA graph: work captured from a stream once and launched again as one. The captured arguments,
// addresses included, stay the same; only the contents of memory may differ between launches. Move-only. Not
// thread-safe: as the stream.
#pragma once

#include <functional>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream.h"

struct CUgraphExec_st;

namespace ringmaster::cuda {

class Graph {
 public:
  // Captures what `enqueue` enqueues on `stream`, without running it. REQUIRES: `enqueue` does not
  // synchronize, allocate memory or use events.
  static Result<Graph> Record(Stream stream, const std::function<void()>& enqueue);
  Graph() = default;
  // REQUIRES: no launch of the graph is running.
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  // Enqueues the graph.
  void Launch(Stream stream) const;

 private:
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace ringmaster::cuda
