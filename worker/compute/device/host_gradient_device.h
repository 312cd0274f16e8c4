// SPDX-License-Identifier: Apache-2.0

// Sums of gradients on the CPU: worker/compute/numerics on ordinary memory. Every call returns after its work
// is done, and host and device memory are the same. HostGradientDevice<GradientDevice> is a device by itself,
// which needs nothing of worker/compute/engine; host_device.cc derives the CPU's Device from it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "worker/compute/device/gradient_device.h"
#include "worker/compute/numerics/exact.h"
#include "worker/fabric/copy.h"

namespace ringmaster::device {

// `Interface` is GradientDevice or Device.
template <class Interface>
class HostGradientDevice : public Interface {
 public:
  std::string Kind() const override { return "cpu"; }
  bool OnHost() const override { return true; }
  std::string Description() const override { return "cpu"; }
  std::string Fingerprint() const override { return "cpu"; }

  Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) override {
    try {
      return std::span(memory_.emplace_back(bytes));
    } catch (const std::bad_alloc&) {
      return Error{Code::kExhausted, fmt::format("{}: cannot allocate {:.1f} MiB of memory", label,
                                                 static_cast<double>(bytes) / (1 << 20))};
    }
  }

  Result<std::span<std::byte>> AllocateMirror(std::span<std::byte> host,
                                              std::string_view /*label*/) override {
    return host;
  }

  Status Upload(std::span<const std::byte> host, std::span<std::byte> memory) override {
    return Copy(host, memory);
  }
  Status Download(std::span<const std::byte> memory, std::span<std::byte> host) override {
    return Copy(memory, host);
  }
  Status Copy(std::span<const std::byte> from, std::span<std::byte> to) override {
    CHECK(from.size() == to.size());
    if (from.data() != to.data()) fabric::CopyBytes(to.data(), from.data(), from.size());
    return Ok();
  }

  Status BindThread() override { return Ok(); }
  Status WaitForStream(ForeignStream /*stream*/) override { return Ok(); }
  Status LetStreamWait(ForeignStream /*stream*/) override { return Ok(); }

  Status Accumulate(std::span<const float> gradients, std::span<const int32_t> exponents, int quantum_bits,
                    bool overwrite, std::span<int32_t> sums, std::span<int32_t> maxima) override {
    const auto limbs = static_cast<size_t>(numerics::LimbsOf(sums.size(), exponents.size()));
    CHECK(gradients.size() <= exponents.size() * kBlockSize && maxima.size() == exponents.size());
    const size_t whole = gradients.size() / kBlockSize;
    numerics::Accumulate(gradients.first(whole * kBlockSize), exponents.first(whole), quantum_bits, overwrite,
                         sums.first(whole * kBlockSize * limbs), maxima.first(whole));
    std::span<const float> rest = gradients.subspan(whole * kBlockSize);
    std::array<float, kBlockSize> padded;
    for (size_t block = whole; block < exponents.size(); ++block) {
      padded.fill(0);
      std::ranges::copy(rest, padded.begin());
      rest = {};
      numerics::Accumulate(padded, exponents.subspan(block, 1), quantum_bits, overwrite,
                           sums.subspan(block * kBlockSize * limbs, kBlockSize * limbs),
                           maxima.subspan(block, 1));
    }
    return Ok();
  }

  Status Decode(std::span<const int32_t> sums, std::span<const int32_t> exponents, int quantum_bits,
                double scale, std::span<float> out) override {
    const bool in_place = static_cast<const void*>(out.data()) == sums.data();
    if (!in_place || sums.size() == out.size()) {
      numerics::Decode(sums, exponents, quantum_bits, scale, out);
      return Ok();
    }
    // Two limbs in place: only the first block is written where it is read; the others are written where
    // earlier blocks were.
    std::array<float, kBlockSize> first;
    numerics::Decode(sums.first(2 * kBlockSize), exponents.first(1), quantum_bits, scale, first);
    std::ranges::copy(first, out.begin());
    numerics::Decode(sums.subspan(2 * kBlockSize), exponents.subspan(1), quantum_bits, scale,
                     out.subspan(kBlockSize));
    return Ok();
  }

  Status Add(std::span<const float> gradients, bool overwrite, std::span<float> sums) override {
    CHECK(gradients.size() <= sums.size());
    if (!overwrite) {
      numerics::Add(gradients, sums.first(gradients.size()));
      return Ok();
    }
    fabric::CopyBytes(std::as_writable_bytes(sums).data(), std::as_bytes(gradients).data(),
                      gradients.size_bytes());
    std::ranges::fill(sums.subspan(gradients.size()), 0.0f);
    return Ok();
  }

  Status Scale(std::span<const float> sums, float factor, std::span<float> out) override {
    numerics::Multiply(sums, factor, out);
    return Ok();
  }

  Status Norm(std::span<const float> values, std::span<double> norm) override {
    norm[0] = numerics::Norm(values);
    return Ok();
  }

  Status Sync() override { return Ok(); }
  Status RecordSyncPoint() override { return Ok(); }
  Status WaitForSyncPoint() override { return Ok(); }

  Result<Event> RecordEvent() override { return Event{0}; }
  Result<Event> CopyToHost(std::span<const std::byte> /*memory*/, std::span<std::byte> /*host*/) override {
    return Event{0};
  }
  Status SyncEvent(Event /*event*/) override { return Ok(); }
  Status CopyToDevice(std::span<const std::byte> /*host*/, std::span<std::byte> /*memory*/) override {
    return Ok();
  }
  Status CollectivesWaitEvent(Event /*event*/) override { return Ok(); }
  Status JoinStreams() override { return Ok(); }

  Result<std::unique_ptr<fabric::AsyncCommunicator>> Collectives(
      fabric::Communicator* /*host*/, const std::atomic<bool>* /*cancel*/) override {
    return std::unique_ptr<fabric::AsyncCommunicator>();
  }
  std::string CollectivesTransport() override { return ""; }

 private:
  static constexpr auto kBlockSize = static_cast<size_t>(numerics::kBlock);

  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace ringmaster::device
