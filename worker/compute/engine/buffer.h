// SPDX-License-Identifier: Apache-2.0

// Memory aligned to cache lines. The constructor zeroes and thereby touches it, so that a model takes its
// memory when it starts and not in the middle of a step. Large buffers use huge pages where the system
// provides them. Move-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace ringmaster::engine {

// Returns zeroed memory, to be freed by std::free. Throws std::bad_alloc, as containers do.
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
