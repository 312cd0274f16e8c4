// SPDX-License-Identifier: Apache-2.0

// Device memory of the emulation: ordinary memory between guard zones, filled with NaNs (all bits one) when
// made. A write into a guard zone is found after the launch that did it; what a kernel reads from there is
// NaN, which shows in its result. Under the address sanitizer both are found where they happen.
//
// Any thread may call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace ringmaster::cuda::emulation {

// Aligned to 256 bytes, as cudaMalloc's.
void* AllocateGuarded(size_t bytes);
void FreeGuarded(void* memory);

// Throws KernelError, with `culprit` in its message, when a guard zone of any allocation was written to.
void CheckGuards(const char* culprit);

// Guarded memory with an owner, for tests of kernels.
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
