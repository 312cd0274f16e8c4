// SPDX-License-Identifier: Apache-2.0

// Streams that are recorded: what is given to one of them is kept and runs only when the recording is
// replayed. Arguments keep the values they had, as in a CUDA graph. The runtime's Graph starts and ends
// recordings; kernels, copies, fills and products go through Give.
//
// Thread rule: a thread records at most one stream, and only its own calls are recorded.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::emulation {

using Work = std::vector<std::function<void()>>;

// As long as it lives, the calling thread records `stream`.
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

// Whether this thread records `stream`, or any.
bool Records(Stream stream);
bool RecordsAny();
// Adds to this thread's recording.
void Keep(std::function<void()> work);

// Runs `work` now, or keeps a copy of it when `stream` is recorded.
template <class Fn>
void Give(Stream stream, const Fn& work) {
  if (Records(stream))
    Keep(work);
  else
    work();
}

}  // namespace ringmaster::cuda::emulation
