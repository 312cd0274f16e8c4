// SPDX-License-Identifier: Apache-2.0

// Memory of a GPU, and pinned memory of the host, which the GPU reads and writes by itself. Both are zeroed
// when made and move-only. Taking and giving back waits for the device: at the start, not within a step.
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

// Aligned to 256 bytes. kExhausted tells how much was asked for and how much is free.
Result<void*> Allocate(MemoryKind kind, int64_t bytes);
// The host's own code may read and write it, so that others may be told that it is the host's.
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

// Makes memory that somebody else owns, such as the fabric's, pinned for as long as this lives. Move-only.
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

// All that something needs of a device, taken at once, so that a device that is too small is refused with the
// whole sum: what is needed, by part, what is free, and which field to lower.
class MemoryPlan {
 public:
  // `remedy`: "lower spec.training.model.context".
  explicit MemoryPlan(std::string remedy) : remedy_(std::move(remedy)) {}

  // `buffer`, which outlives the plan, gets `size` elements. Parts of one name are summed up in the message.
  template <class T>
  void Take(Buffer<T>& buffer, int64_t size, const std::string& part) {
    Add(part, size * static_cast<int64_t>(sizeof(T)), [&buffer, size]() -> Status {
      RM_ASSIGN(buffer, Buffer<T>::Create(size));
      return Ok();
    });
  }
  // Names what was taken already, for the same purpose.
  void Mention(int64_t bytes, const std::string& part);
  // Of all that, and of what the plan takes itself.
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
  int64_t mentioned_ = 0;  // of bytes_
  std::vector<Part> parts_;
  std::vector<std::function<Status()>> allocate_;
};

}  // namespace ringmaster::cuda
