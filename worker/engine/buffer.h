// A block of memory aligned to cache lines, zeroed and thereby touched when made: what a model needs is taken
// at its start, not in the middle of a step. Move-only.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace ringmaster::engine {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  // Throws std::bad_alloc, as the containers do.
  explicit Buffer(int64_t size) : size_(size) {
    if (size == 0) return;
    const size_t bytes = (static_cast<size_t>(size) * sizeof(T) + 63) / 64 * 64;
    memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (memory_ == nullptr) throw std::bad_alloc();
    std::memset(memory_.get(), 0, bytes);
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
