// SPDX-License-Identifier: Apache-2.0

// The device that computes: the interface between the step loop and a CPU or a GPU. Newcomers start here,
// continue with host_device.cc, the shortest implementation, and then read
// worker/compute/cuda/cuda_device.cc.
//
// Execution model. A device works like a CUDA stream: a call enqueues work on the device's compute stream and
// may return before the work is done. Work on a stream runs in the order of the calls; a model's work
// (engine::Model::Enqueue) is on the same stream. Only Sync, SyncEvent and WaitForSyncPoint block the host.
// Host memory passed to Upload, Download, CopyToHost or CopyToDevice belongs to the device until such a call
// has returned. The host device runs everything within the call.
//
// Determinism. Results are a function of the arguments alone. Accumulate, Decode, Norm, Update and
// Hash give the bits of worker/compute/numerics, worker/compute/optimizer and base/hash.h on every device.
// The gradients of a model are bit-identical on devices of equal Fingerprint and Plan.
//
// Errors: kExhausted when memory is short; the message has the arithmetic and the field to lower. kGone when
// the device has failed: every later call fails, too, and the process must exit. An error of enqueued work
// may surface only at the next call that blocks.
//
// Not thread-safe: the main thread of the trainer makes all calls, with the exception of SyncEvent,
// CopyToDevice and CollectivesWaitEvent, which the communication thread makes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::device {

// A point in the compute stream, or the end of a copy to the host. Valid until JoinStreams.
using Event = uint64_t;

// Inputs of an update that only the device knows when the update is enqueued, so that the host need not wait
// for them: the gradient is clipped by `norm`, and nothing is written unless `contributors` equals
// `required_contributors`. Shape of both spans: (1), device memory.
struct UpdateCondition {
  std::span<const double> norm;
  std::span<const int32_t> contributors;
  int32_t required_contributors = 1;
};

class Device {
 public:
  virtual ~Device() = default;

  // "cpu" or "cuda".
  virtual std::string Kind() const = 0;
  // True when device memory is host memory.
  virtual bool OnHost() const = 0;
  // For people: "NVIDIA H200, 139.8 GiB, driver 580.95".
  virtual std::string Description() const = 0;

  // What the members of a job must have in common for bit-identical results: kind and model of the device,
  // versions of libraries.
  virtual std::string Fingerprint() const = 0;
  // The algorithms that were chosen by measurement (GEMM, attention), complete once the models exist; empty
  // where nothing is measured. A joining member adopts the plan of the others.
  virtual std::string Plan() const = 0;
  // Errors: kInvalid when this device cannot run the algorithms of `plan`.
  virtual Status AdoptPlan(const std::string& plan) = 0;

  // Creates a model whose parameters and gradients are device memory; batches and the parameters of
  // Initialise are host memory. REQUIRES: the device outlives the model.
  virtual Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config) = 0;

  // Returns zeroed device memory, freed with the device. `label` names it in messages.
  virtual Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) = 0;
  // Returns the device's copy of `host`: `host` itself on the host device; otherwise zeroed device memory of
  // the same size, with `host` pinned for fast copies. REQUIRES: `host` begins at a page and outlives the
  // device.
  virtual Result<std::span<std::byte>> AllocateMirror(std::span<std::byte> host, std::string_view label) = 0;

  // Copies on the compute stream. No-op when both spans are the same memory. REQUIRES: equal sizes.
  virtual Status Upload(std::span<const std::byte> host, std::span<std::byte> memory) = 0;
  virtual Status Download(std::span<const std::byte> memory, std::span<std::byte> host) = 0;

  // Exact numerics (worker/compute/numerics/exact.h). All spans are device memory. N elements are
  // N / engine::kBlock blocks. Shape: gradients, out (N); sums (N), or (2 N) with two limbs; exponents,
  // maxima (N / kBlock).
  virtual Status Accumulate(std::span<const float> gradients, std::span<const int32_t> exponents,
                            int quantum_bits, bool overwrite, std::span<int32_t> sums,
                            std::span<int32_t> maxima) = 0;
  virtual Status Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                        double scale, std::span<float> out) = 0;
  // Fast numerics: sums = gradients when `overwrite`, else sums += gradients; out = sums * factor. Shape:
  // (N).
  virtual Status Add(std::span<const float> gradients, bool overwrite, std::span<float> sums) = 0;
  virtual Status Scale(std::span<const float> sums, float factor, std::span<float> out) = 0;

  // norm[0] = the Euclidean norm of `values`.
  virtual Status Norm(std::span<const float> values, std::span<double> norm) = 0;

  // Enqueues one optimizer step over all parameters. Ignores scalars.gradient_scale, which the device derives
  // from condition.norm. Afterwards `hashes` are those of the arrays slices.next_*. REQUIRES: a Sync since
  // the previous Update.
  virtual Status Update(const optimizer::Config& config, const optimizer::StepScalars& scalars,
                        const engine::Layout& layout, const optimizer::Slices& slices,
                        const UpdateCondition& condition, const optimizer::ChunkHashes& hashes) = 0;

  // Enqueues HashChunks (base/hash.h) of `values`, a multiple of engine::kBlock elements. Both spans are
  // device memory.
  virtual Status Hash(std::span<const float> values, std::span<uint64_t> hashes) = 0;

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
