// SPDX-License-Identifier: Apache-2.0

// Device memory of the emulation: ordinary memory between guard zones, filled with NaNs (all bits set). The
// end of a launch detects writes to a guard zone. A kernel that reads a guard zone gets NaN, which shows in
// its result. The address sanitizer reports both accesses at once.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace ringmaster::cuda::emulation {

// Returns memory aligned to 256 bytes, as cudaMalloc.
void* AllocateGuarded(size_t bytes);
void FreeGuarded(void* memory);

// Throws KernelError, with `culprit` in the message, when a kernel wrote to a guard zone of any allocation.
void CheckGuards(const char* culprit);

// RAII guarded memory, for tests of kernels.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t size)
      : data_(static_cast<T*>(AllocateGuarded(size * sizeof(T))), FreeGuarded), size_(size) {}
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    std::copy(values.begin(), values.end(), data_.get());
  }
  T* get() { return data_.get(); }
  const T* get() const { return data_.get(); }
  size_t size() const { return size_; }
  std::vector<T> values() const { return {data_.get(), data_.get() + size_}; }

 private:
  std::unique_ptr<T[], void (*)(void*)> data_;
  size_t size_;
};

}  // namespace ringmaster::cuda::emulation
