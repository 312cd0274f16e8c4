// SPDX-License-Identifier: Apache-2.0

// Stream capture: work that is enqueued on a captured stream is stored, and runs when the graph is launched.
// Arguments keep their values, as in a CUDA graph. The emulated Graph begins and ends captures; kernels,
// copies, fills and GEMM go through Give.
//
// Thread-local: a thread captures at most one stream, and only its own calls are captured.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::emulation {

using Work = std::vector<std::function<void()>>;

// Captures `stream` on the calling thread for the lifetime of the object.
class Recording {
 public:
  explicit Recording(Stream stream);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  Work Take() { return std::move(work_); }

 private:
  friend void Keep(std::function<void()> work);
  Work work_;
};

// Return whether this thread captures `stream`, or any stream.
bool Records(Stream stream);
bool RecordsAny();
// Adds work to this thread's capture.
void Keep(std::function<void()> work);

// Runs `work` now, or stores a copy of it when `stream` is being captured.
template <class Fn>
void Give(Stream stream, const Fn& work) {
  if (Records(stream))
    Keep(work);
  else
    work();
}

}  // namespace ringmaster::cuda::emulation
