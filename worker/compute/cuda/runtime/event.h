// SPDX-License-Identifier: Apache-2.0

// A point in a stream that another stream or a host thread waits for: a CUDA event, with the method names of
// PyTorch's. Move-only. Any number of threads may wait while one thread records.
#pragma once

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream.h"

struct CUevent_st;

namespace ringmaster::cuda {

class Event {
 public:
  static Result<Event> Create();
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Sets the event to the end of the work enqueued on `stream` so far; replaces an earlier point.
  void Record(Stream stream);
  // Makes work that is enqueued on `stream` from now on wait for the event.
  void Block(Stream stream) const;
  // Blocks the calling thread until the event has been reached; returns at once when nothing was recorded.
  Status Synchronize() const;
  // Returns whether the event has been reached.
  Result<bool> Query() const;
  // Returns the milliseconds between two events that have been reached.
  static Result<double> Elapsed_ms(const Event& from, const Event& to);

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace ringmaster::cuda
