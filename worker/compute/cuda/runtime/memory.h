// SPDX-License-Identifier: Apache-2.0

// Device memory, and pinned host memory, which the GPU accesses directly. Both are zero-initialised and
// move-only. Allocating and freeing block until the device is idle: allocate at start-up, not within a step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ringmaster::cuda {

enum class MemoryKind : uint8_t { kDevice, kPinned };

// Returns memory aligned to 256 bytes. Errors: kExhausted with the requested and the free bytes.
Result<void*> Allocate(MemoryKind kind, int64_t bytes);
// Returns whether host code can read and write memory of this kind, so that it may be declared as host
// memory to other libraries.
bool HostAccessible(MemoryKind kind);
void Release(MemoryKind kind, void* memory);

template <class T, MemoryKind kKind>
class Memory {
 public:
  static Result<Memory> Create(int64_t size) {
    Memory memory;
    if (size == 0) return memory;
    RM_ASSIGN(void* const bytes, Allocate(kKind, size * static_cast<int64_t>(sizeof(T))));
    memory.data_ = static_cast<T*>(bytes);
    memory.size_ = size;
    return memory;
  }
  Memory() = default;
  ~Memory() { Release(kKind, data_); }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* get() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  std::span<T> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

template <class T>
using Buffer = Memory<T, MemoryKind::kDevice>;
template <class T>
using Pinned = Memory<T, MemoryKind::kPinned>;

// Pins memory that another object owns, such as the fabric's, for the lifetime of this object. Move-only.
class PinnedRange {
 public:
  static Result<PinnedRange> Create(void* memory, int64_t bytes);
  PinnedRange() = default;
  ~PinnedRange();
  PinnedRange(PinnedRange&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedRange& operator=(PinnedRange&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }

 private:
  void* memory_ = nullptr;
};

// All device memory that a user needs, allocated together, so that the error for a device that is too small
// has the whole sum: the needed bytes by part, the free bytes, and the field to lower. Not thread-safe.
class MemoryPlan {
 public:
  // `remedy`: "lower spec.training.model.context".
  explicit MemoryPlan(std::string remedy) : remedy_(std::move(remedy)) {}

  // Plans `size` elements for `buffer`. Parts of the same name are summed in the message. REQUIRES: `buffer`
  // outlives the plan.
  template <class T>
  void Reserve(Buffer<T>& buffer, int64_t size, const std::string& part) {
    Add(part, size * static_cast<int64_t>(sizeof(T)), [&buffer, size]() -> Status {
      RM_ASSIGN(buffer, Buffer<T>::Create(size));
      return Ok();
    });
  }
  // Adds memory that is already allocated to the message.
  void AddAllocated(int64_t bytes, const std::string& part);
  // Returns the bytes of all parts, allocated and planned.
  int64_t bytes() const { return bytes_; }
  Status Allocate();

 private:
  struct Part {
    std::string name;
    int64_t bytes = 0;
  };
  void Add(const std::string& part, int64_t bytes, std::function<Status()> allocate);
  void Count(const std::string& part, int64_t bytes);
  std::string Arithmetic() const;

  std::string remedy_;
  int64_t bytes_ = 0;
  int64_t already_allocated_ = 0;  // included in bytes_
  std::vector<Part> parts_;
  std::vector<std::function<Status()>> allocate_;
};

}  // namespace ringmaster::cuda
