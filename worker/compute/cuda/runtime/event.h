// SPDX-License-Identifier: Apache-2.0

// A point in a stream that others wait for: another stream, or a thread of the host. Move-only; any thread
// may wait while one thread records.
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

  // The point is behind all that `stream` has been given so far. Recording again moves it.
  void Record(Stream stream);
  // What `stream` is given from now on runs after the point.
  void Block(Stream stream) const;
  // Sleeps until the point is reached; at once when nothing was recorded.
  Status Synchronize() const;
  Result<bool> Query() const;
  // Milliseconds between two points that have been reached.
  static Result<double> Elapsed_ms(const Event& from, const Event& to);

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace ringmaster::cuda
