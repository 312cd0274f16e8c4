// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <climits>

namespace ringmaster::fabric::shm {
namespace {

// The kernel compares 32 bits: the half that changes with every step.
const uint32_t* LowHalf(const std::atomic<uint64_t>& word) {
  const auto* halves = reinterpret_cast<const uint32_t*>(&word);
  return halves + (std::endian::native == std::endian::big ? 1 : 0);
}

}  // namespace

void FutexWait(const std::atomic<uint64_t>& word, uint32_t seen, Duration limit) {
  const auto whole = std::chrono::duration_cast<seconds>(limit);
  timespec timeout = {whole.count(), (limit - whole).count()};
  ::syscall(SYS_futex, LowHalf(word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint64_t>& word) {
  ::syscall(SYS_futex, LowHalf(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ringmaster::fabric::shm
