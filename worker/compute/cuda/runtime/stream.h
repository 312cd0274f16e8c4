// SPDX-License-Identifier: Apache-2.0

// A queue of work of one GPU: what is enqueued runs in order, after the call has returned. Enqueueing never
// fails visibly: what went wrong is told by the next Synchronize, Event::Wait or Event::Done of the same
// thread, and by every one after it when the device is lost (error.h).
//
// Thread rule: one thread at a time uses a stream; a thread first calls BindDevice (device_properties.h).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda {

// Waits until all of the stream is done.
Status Synchronize(Stream stream);
// What went wrong with enqueueing on this thread since it last waited or asked; for who will not wait.
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

// Enqueue copies and fills. Host memory must be pinned (memory.h) and stay untouched until the copy is done.
void CopyToDevice(Stream stream, void* device, const void* host, int64_t bytes);
void CopyToHost(Stream stream, void* host, const void* device, int64_t bytes);
void CopyOnDevice(Stream stream, void* to, const void* from, int64_t bytes);
void FillZero(Stream stream, void* device, int64_t bytes);

}  // namespace ringmaster::cuda
