// SPDX-License-Identifier: Apache-2.0

// Sleep on a word that another process changes. The sleeper's mapping may be read-only.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace ringmaster::fabric::shm {

// Sleeps while the low half of `word` is `seen`, at most `limit`; may return early.
void FutexWait(const std::atomic<uint64_t>& word, uint32_t seen, Duration limit);

// Wakes every process that sleeps on `word`. Never blocks.
void FutexWakeAll(const std::atomic<uint64_t>& word);

}  // namespace ringmaster::fabric::shm
