// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda/runtime/heap.h"

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/check.h"
#include "tests/cuda/emulation/memory.h"

namespace ringmaster::cuda::emulation {
namespace {

enum class Kind { kDevice, kPinned, kForeign };

struct Block {
  int64_t bytes = 0;
  Kind kind = Kind::kDevice;
};

struct Heap {
  std::mutex mutex;
  std::map<const std::byte*, Block> blocks;
  int64_t used = 0;
  int64_t total = int64_t{16} << 30;
};

Heap& TheHeap() {
  static Heap heap;
  static const bool sized = [] {
    if (const char* given = std::getenv("RINGMASTER_EMULATED_MEMORY")) heap.total = std::atoll(given);
    return true;
  }();
  (void)sized;
  return heap;
}

void* Allocate(int64_t bytes, Kind kind) {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  const bool device = kind == Kind::kDevice;
  if (device && heap.used + bytes > heap.total) return nullptr;
  void* const memory = AllocateGuarded(static_cast<size_t>(bytes));
  heap.blocks[static_cast<std::byte*>(memory)] = {bytes, kind};
  if (device) heap.used += bytes;
  return memory;
}

void Forget(void* memory, bool foreign) {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  const auto it = heap.blocks.find(static_cast<std::byte*>(memory));
  CHECK(it != heap.blocks.end() && (it->second.kind == Kind::kForeign) == foreign,
        "not memory of the emulated device, or freed twice");
  if (it->second.kind == Kind::kDevice) heap.used -= it->second.bytes;
  heap.blocks.erase(it);
}

bool In(const void* memory, int64_t bytes, bool device) {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  const auto* const at = static_cast<const std::byte*>(memory);
  auto it = heap.blocks.upper_bound(at);
  if (it == heap.blocks.begin()) return false;
  --it;
  return (it->second.kind == Kind::kDevice) == device && at + bytes <= it->first + it->second.bytes;
}

}  // namespace

void* AllocateDevice(int64_t bytes) { return Allocate(bytes, Kind::kDevice); }
void* AllocatePinned(int64_t bytes) { return Allocate(bytes, Kind::kPinned); }

void Free(void* memory) {
  if (memory == nullptr) return;
  Forget(memory, false);
  FreeGuarded(memory);
}

void Pin(void* memory, int64_t bytes) {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  const bool is_new =
      heap.blocks.try_emplace(static_cast<std::byte*>(memory), Block{bytes, Kind::kForeign}).second;
  CHECK(is_new, "pinned twice");
}

void Unpin(void* memory) {
  if (memory != nullptr) Forget(memory, true);
}

DeviceUse UseOfDevice() {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  return {heap.used, heap.total};
}

int64_t PinnedBytes() {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  int64_t bytes = 0;
  for (const auto& [memory, block] : heap.blocks)
    if (block.kind != Kind::kDevice) bytes += block.bytes;
  return bytes;
}

void SetDeviceMemory(int64_t total_bytes) {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  heap.total = total_bytes;
}

bool InDevice(const void* memory, int64_t bytes) { return In(memory, bytes, true); }
bool InPinned(const void* memory, int64_t bytes) { return In(memory, bytes, false); }

}  // namespace ringmaster::cuda::emulation
