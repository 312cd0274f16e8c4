// SPDX-License-Identifier: Apache-2.0

// HostDeviceBuffer is memory with one copy on the host and one on the device; both are the same memory if the
// device is the host. The host's copy is in the fabric's arenas, so that collectives and peers access it
// without staging. Value type that does not own the memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "worker/compute/device/gradient_device.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::trainer {

template <class T>
std::span<T> SpanOf(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <class T>
struct HostDeviceBuffer {
  std::span<T> host;
  std::span<T> device;

  static Result<HostDeviceBuffer> Create(fabric::Fabric* fabric, device::GradientDevice* device,
                                         int64_t elements, std::string_view label) {
    RM_ASSIGN(const std::span<std::byte> host,
              fabric->Allocate(static_cast<size_t>(elements) * sizeof(T), label));
    RM_ASSIGN(const std::span<std::byte> there, device->AllocateMirror(host, label));
    return HostDeviceBuffer{SpanOf<T>(host), SpanOf<T>(there)};
  }

  HostDeviceBuffer Part(int64_t begin, int64_t end) const {
    const auto from = static_cast<size_t>(begin);
    const auto count = static_cast<size_t>(end - begin);
    return {host.subspan(from, count), device.subspan(from, count)};
  }

  Status Upload(device::GradientDevice* to) const {
    return to->Upload(std::as_bytes(host), std::as_writable_bytes(device));
  }
  Status Download(device::GradientDevice* from) const {
    return from->Download(std::as_bytes(device), std::as_writable_bytes(host));
  }
};

}  // namespace ringmaster::trainer
