// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda/emulation/memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "base/check.h"
#include "base/sanitizers.h"
#include "tests/cuda/emulation/error.h"

#if defined(RINGMASTER_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace ringmaster::cuda::emulation {
namespace {

constexpr size_t kGuard = 256;
constexpr int kPattern = 0xff;

size_t RoundUp(size_t n) { return (n + kGuard - 1) / kGuard * kGuard; }

struct Registry {
  std::mutex mutex;
  std::map<std::byte*, size_t> allocations;  // the address that the user has, and its bytes
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

#if defined(RINGMASTER_ADDRESS_SANITIZER)
void Forbid(std::byte* from, size_t bytes) { ASAN_POISON_MEMORY_REGION(from, bytes); }
void Allow(std::byte* from, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(from, bytes); }
#else
void Forbid(std::byte*, size_t) {}
void Allow(std::byte*, size_t) {}
#endif

#if !defined(RINGMASTER_ADDRESS_SANITIZER)
bool Intact(const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (from[i] != static_cast<std::byte>(kPattern)) return false;
  }
  return true;
}
#endif

}  // namespace

void* AllocateGuarded(size_t bytes) {
  const size_t whole = kGuard + RoundUp(bytes) + kGuard;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kGuard, whole));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, kPattern, whole);
  Forbid(memory, kGuard);
  Forbid(memory + kGuard + bytes, whole - kGuard - bytes);
  Registry& registry = TheRegistry();
  const std::scoped_lock lock(registry.mutex);
  registry.allocations.emplace(memory + kGuard, bytes);
  return memory + kGuard;
}

void FreeGuarded(void* memory) {
  if (memory == nullptr) return;
  auto* const data = static_cast<std::byte*>(memory);
  Registry& registry = TheRegistry();
  const std::scoped_lock lock(registry.mutex);
  const auto found = registry.allocations.find(data);
  CHECK(found != registry.allocations.end(), "memory was not allocated by the emulation");
  Allow(data - kGuard, kGuard + RoundUp(found->second) + kGuard);
  registry.allocations.erase(found);
  std::free(data - kGuard);
}

void CheckGuards([[maybe_unused]] const char* culprit) {
#if !defined(RINGMASTER_ADDRESS_SANITIZER)
  Registry& registry = TheRegistry();
  const std::scoped_lock lock(registry.mutex);
  for (const auto& [data, bytes] : registry.allocations) {
    const bool before = Intact(data - kGuard, kGuard);
    const bool behind = Intact(data + bytes, RoundUp(bytes) - bytes + kGuard);
    if (before && behind) continue;
    throw KernelError(
        fmt::format("{}: wrote {} device memory of {} bytes", culprit, before ? "after" : "before", bytes));
  }
#endif
}

}  // namespace ringmaster::cuda::emulation
