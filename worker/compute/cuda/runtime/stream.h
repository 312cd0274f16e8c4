// SPDX-License-Identifier: Apache-2.0

// A CUDA stream: a queue of work for one GPU that runs asynchronously, in order. Enqueueing does not return
// errors. The next Synchronize, Event::Synchronize or Event::Query of the same thread reports them; when the
// device is lost, every later one does (error.h).
//
// Not thread-safe: one thread at a time uses a stream. REQUIRES: the thread has called BindDevice
// (device_properties.h).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda {

// Blocks until all work of the stream is done.
Status Synchronize(Stream stream);
// Returns the error of this thread's enqueueing calls since it last synchronized or queried, for a thread
// that does not synchronize.
Status LastError();

class OwnedStream {
 public:
  static Result<OwnedStream> Create();
  OwnedStream() = default;
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept;
  OwnedStream& operator=(OwnedStream&& other) noexcept;

  Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

// Enqueue copies and fills. REQUIRES: host memory is pinned (memory.h) and unchanged until the copy is done.
void CopyToDevice(Stream stream, void* device, const void* host, int64_t bytes);
void CopyToHost(Stream stream, void* host, const void* device, int64_t bytes);
void CopyOnDevice(Stream stream, void* to, const void* from, int64_t bytes);
void FillZero(Stream stream, void* device, int64_t bytes);

}  // namespace ringmaster::cuda
