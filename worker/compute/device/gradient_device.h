// SPDX-License-Identifier: Apache-2.0

// GradientDevice sums gradients on a CPU or a GPU: memory, the exact and the fast numerics, streams, and
// collectives. It is the part of a device that the library for programs needs, whose gradients other software
// computes; device.h adds models and optimizers. host_gradient_device.h is the shortest implementation.
//
// Execution model. A device works like a CUDA stream: a call enqueues work on the device's compute stream and
// may return before the work is done. Work on a stream runs in the order of the calls. Only Sync, SyncEvent
// and WaitForSyncPoint block the host. Host memory passed to Upload, Download, CopyToHost or CopyToDevice
// belongs to the device until such a call has returned. The host device runs everything within the call.
//
// Determinism. Results are a function of the arguments alone. Accumulate, Decode and Norm give the bits of
// worker/compute/numerics on every device.
//
// Errors: kExhausted when memory is short; the message has the arithmetic and the field to lower. kGone when
// the device has failed: every later call fails, too, and the process must exit. An error of enqueued work
// may surface only at the next call that blocks.
//
// Not thread-safe: one thread at a time makes all calls, with the exception of SyncEvent, CopyToDevice and
// CollectivesWaitEvent, which the communication thread makes. In a trainer the one thread is the main thread;
// in a program another thread takes over with a call of BindThread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::device {

// A point in the compute stream, or the end of a copy to the host. Valid until JoinStreams.
using Event = uint64_t;

// A stream of other software in this process: a cudaStream_t, of which nullptr is the legacy default stream.
// The host device ignores it.
using ForeignStream = void*;

class GradientDevice {
 public:
  virtual ~GradientDevice() = default;

  // "cpu" or "cuda".
  virtual std::string Kind() const = 0;
  // True when device memory is host memory.
  virtual bool OnHost() const = 0;
  // For people: "NVIDIA H200, 139.8 GiB, driver 580.95".
  virtual std::string Description() const = 0;
  // What the members of a job must have in common for bit-identical results: kind and model of the device,
  // versions of libraries.
  virtual std::string Fingerprint() const = 0;

  // Returns zeroed device memory, freed with the device. `label` names it in messages.
  virtual Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) = 0;
  // Returns the device's copy of `host`: `host` itself on the host device; otherwise zeroed device memory of
  // the same size, with `host` pinned for fast copies. REQUIRES: `host` begins at a page and outlives the
  // device.
  virtual Result<std::span<std::byte>> AllocateMirror(std::span<std::byte> host, std::string_view label) = 0;

  // Copies on the compute stream. No-op when both spans are the same memory. REQUIRES: equal sizes.
  virtual Status Upload(std::span<const std::byte> host, std::span<std::byte> memory) = 0;
  virtual Status Download(std::span<const std::byte> memory, std::span<std::byte> host) = 0;
  // The same from device memory to device memory.
  virtual Status Copy(std::span<const std::byte> from, std::span<std::byte> to) = 0;

  // Binds the calling thread to this device, which other software may have bound to another one. Fast.
  virtual Status BindThread() = 0;
  // WaitForStream: work that is enqueued from now on runs after the work that `stream` has now.
  // LetStreamWait: work that `stream` gets from now on runs after the work that is enqueued now. Neither
  // blocks the host.
  virtual Status WaitForStream(ForeignStream stream) = 0;
  virtual Status LetStreamWait(ForeignStream stream) = 0;

  // Exact numerics (worker/compute/numerics/exact.h). All spans are device memory. N elements are
  // N / numerics::kBlock blocks. Shape: gradients (N) or fewer, whose missing elements count as zero; out
  // (N); sums (N), or (2 N) with two limbs; exponents, maxima (N / kBlock). `out` may be the first N words of
  // `sums`.
  virtual Status Accumulate(std::span<const float> gradients, std::span<const int32_t> exponents,
                            int quantum_bits, bool overwrite, std::span<int32_t> sums,
                            std::span<int32_t> maxima) = 0;
  virtual Status Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                        double scale, std::span<float> out) = 0;
  // Fast numerics: sums = gradients when `overwrite`, else sums += gradients; out = sums * factor. Shape:
  // gradients (N) or fewer, as above; sums, out (N).
  virtual Status Add(std::span<const float> gradients, bool overwrite, std::span<float> sums) = 0;
  virtual Status Scale(std::span<const float> sums, float factor, std::span<float> out) = 0;

  // norm[0] = the Euclidean norm of `values`.
  virtual Status Norm(std::span<const float> values, std::span<double> norm) = 0;

  // Blocks until everything enqueued on the compute stream is done.
  virtual Status Sync() = 0;
  // Marks a point in the compute stream, and blocks until the work before the latest mark is done.
  virtual Status RecordSyncPoint() = 0;
  virtual Status WaitForSyncPoint() = 0;

  // Reduction of a bucket by the communication thread while the main thread enqueues more work.
  //
  // Through the host:
  //   main   event = CopyToHost(memory, host)  copies once the work enqueued so far is done
  //   comm   SyncEvent(event)                  blocks until the copy is done; then reduces `host`
  //   comm   CopyToDevice(host, memory)        starts the copy back and returns
  // On the device:
  //   main   event = RecordEvent()
  //   comm   CollectivesWaitEvent(event)       collectives started from now on run after the event
  // Both end with:
  //   main   JoinStreams()                     call after the last bucket: later work sees the sums
  virtual Result<Event> RecordEvent() = 0;
  virtual Result<Event> CopyToHost(std::span<const std::byte> memory, std::span<std::byte> host) = 0;
  virtual Status SyncEvent(Event event) = 0;
  virtual Status CopyToDevice(std::span<const std::byte> host, std::span<std::byte> memory) = 0;
  virtual Status CollectivesWaitEvent(Event event) = 0;
  virtual Status JoinStreams() = 0;

  // Creates collectives that run on this device's memory. Every member of `host` calls this. Returns nullptr
  // on all members when one of them has no such collectives. Operations fail with kCancelled soon after
  // *cancel becomes true. REQUIRES: `host` outlives the result.
  virtual Result<std::unique_ptr<fabric::AsyncCommunicator>> Collectives(fabric::Communicator* host,
                                                                         const std::atomic<bool>* cancel) = 0;
  // Name of the transport of these collectives (rendezvous/transport_name.h); empty while the host's
  // communicator is in use.
  virtual std::string CollectivesTransport() = 0;
};

}  // namespace ringmaster::device
