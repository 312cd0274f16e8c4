// SPDX-License-Identifier: Apache-2.0

// What computes: the port between the step loop and a CPU or a GPU. The loop knows spans, not where their
// memory is.
//
// Order: all work is *enqueued*: it happens after what was enqueued before (a model's work included), and may
// not have happened when the call returns. Only Sync and WaitForPoint wait. Host memory given to Upload and
// Download belongs to the device until one of them has. On the host everything happens at once.
//
// Bits: a function of arguments alone. The arithmetic of sums, decoding, norm and update has the bits of
// worker/compute/numerics and worker/compute/optimizer on every device; a model's gradients have equal bits
// on devices of equal Fingerprint and Plan.
//
// Errors: kExhausted when memory is short, with the arithmetic and the field to lower. kGone when the device
// itself failed: nothing works afterwards, and the process must leave. Some failures show only at the next
// call that waits.
//
// Thread rule: the trainer's main thread, but for WaitFor, HandBack and Precede.
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

// Names a hand-over to the thread that reduces, until Rejoin.
using Ticket = uint64_t;

// What an update is decided by on the device itself, so that nobody waits for it: the gradient is clipped by
// `norm`, and nothing is written unless `present` is `everyone`. Both are one number of device memory.
struct Verdict {
  std::span<const double> norm;
  std::span<const int32_t> present;
  int32_t everyone = 1;
};

class Device {
 public:
  virtual ~Device() = default;

  // "cpu" or "cuda".
  virtual std::string Kind() const = 0;
  // Memory of the device is memory of the host.
  virtual bool OnHost() const = 0;
  // For people: "NVIDIA H200, 139.8 GiB, driver 580.95".
  virtual std::string Description() const = 0;

  // What members of a job must have in common for equal bits: kind and type of the device, versions of
  // libraries.
  virtual std::string Fingerprint() const = 0;
  // What was chosen by measuring rather than by rule (algorithms of products), complete once the models are
  // made; a member that joins adopts the plan of those who are there. Empty where nothing is measured.
  // AdoptPlan fails with kInvalid when this device cannot do as the plan says.
  virtual std::string Plan() const = 0;
  virtual Status AdoptPlan(const std::string& plan) = 0;

  // A model whose spans of parameters and gradients are memory of this device; batches, and the parameters of
  // Initialise, are host memory. The device outlives it.
  virtual Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config) = 0;

  // Zeroed memory of the device, freed with it. `label` is what messages call it.
  virtual Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) = 0;
  // The device's memory that goes with this host memory, which outlives the device and begins at a page: the
  // same memory on the host, else as much of its own, zeroed (and the host's is made fast to copy).
  virtual Result<std::span<std::byte>> Counterpart(std::span<std::byte> host, std::string_view label) = 0;

  // Of equal lengths. Nothing happens when both are the same memory.
  virtual Status Upload(std::span<const std::byte> host, std::span<std::byte> memory) = 0;
  virtual Status Download(std::span<const std::byte> memory, std::span<std::byte> host) = 0;

  // Exact numerics, as in worker/compute/numerics/exact.h; all spans are device memory.
  virtual Status Accumulate(std::span<const float> gradients, std::span<const int32_t> exponents,
                            int quantum_bits, bool overwrite, std::span<int32_t> sums,
                            std::span<int32_t> maxima) = 0;
  virtual Status Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                        double scale, std::span<float> out) = 0;
  // Fast numerics: sums (+)= gradients, and out = sums * factor.
  virtual Status Add(std::span<const float> gradients, bool overwrite, std::span<float> sums) = 0;
  virtual Status Scale(std::span<const float> sums, float factor, std::span<float> out) = 0;

  // norm[0] = the norm of the values.
  virtual Status Norm(std::span<const float> values, std::span<double> norm) = 0;

  // One step of the optimizer over the whole arena; the scalars' gradient_scale is not looked at. Once
  // between two waits.
  virtual Status Update(const optimizer::Config& config, const optimizer::StepScalars& scalars,
                        const engine::Layout& layout, const optimizer::Slices& slices,
                        const Verdict& verdict) = 0;

  // Waits until everything enqueued has happened.
  virtual Status Sync() = 0;
  // The same for what had been enqueued when SetPoint was called.
  virtual Status SetPoint() = 0;
  virtual Status WaitForPoint() = 0;

  // Hand-over of a bucket to the thread that reduces it, beside the computation:
  //   owner  HandOver(memory, host)  what is enqueued so far is final; it travels to the host
  //   other  WaitFor(ticket)         ... until it has arrived; reduces it; then
  //   other  HandBack(host, memory)  it begins to travel back; the next bucket may be reduced meanwhile
  //   owner  Rejoin()                after the last HandBack: what is enqueued from here on sees them
  // With an empty `host` nothing travels, and instead of WaitFor and HandBack it is
  //   other  Precede(ticket)         what the collectives are given from now on sees the final memory
  virtual Result<Ticket> HandOver(std::span<const std::byte> memory, std::span<std::byte> host) = 0;
  virtual Status WaitFor(Ticket ticket) = 0;
  virtual Status HandBack(std::span<const std::byte> host, std::span<std::byte> memory) = 0;
  virtual Status Precede(Ticket ticket) = 0;
  virtual Status Rejoin() = 0;

  // Collectives on this device's own memory among the members of `host`, every one of which calls: nullptr on
  // all of them when one has none to offer. `host` outlives it. Operations end with kCancelled soon after
  // *cancel becomes true.
  virtual Result<std::unique_ptr<fabric::AsyncCommunicator>> Collectives(fabric::Communicator* host,
                                                                         const std::atomic<bool>* cancel) = 0;
  // What carries them, in the words of rendezvous/transport_name.h; empty while it is the host's
  // communicator.
  virtual std::string CollectivesTransport() = 0;
};

}  // namespace ringmaster::device
