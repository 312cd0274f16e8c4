// SPDX-License-Identifier: Apache-2.0

// A block of memory aligned to cache lines, zeroed and thereby touched when made: what a model needs is taken
// at its start, not in the middle of a step. Large ones lie in huge pages where the system gives them.
// Move-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace ringmaster::engine {

// For std::free. Throws std::bad_alloc, as the containers do.
void* TouchedMemory(size_t bytes);

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    if (size > 0) memory_.reset(static_cast<T*>(TouchedMemory(static_cast<size_t>(size) * sizeof(T))));
  }
  T* get() { return memory_.get(); }
  const T* get() const { return memory_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T[], Free> memory_;
  int64_t size_ = 0;
};

}  // namespace ringmaster::engine
