// SPDX-License-Identifier: Apache-2.0

// The page that an agent and its trainer share (a sealed memfd): the robust mutex that tells of death, and
// the progress that tells of hangs. Layout is plain data; both sides are of the same build.
//
// The trainer's main thread locks `alive` at start and never unlocks it. The kernel marks it on the way out
// of do_exit, before it tears down memory, so the agent learns of a SIGKILL in well under a millisecond
// however large the trainer is; sockets and SIGCHLD come only after.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace ringmaster::agent {

enum class Activity : uint32_t {
  kStarting,    // loading, allocating: the startup limit applies
  kComputing,   // own work: no heartbeat for long means a hang
  kExchanging,  // within a collective: a peer may be gone, and the order to give up may be long in coming
  kWaiting,     // for orders, or for peers at the end: never the culprit
  kSaving,      // disk
};

struct SharedPage {
  static constexpr uint64_t kMagic = 0x52494e474d535431;  // "RINGMST1"
  uint64_t magic;
  pthread_mutex_t alive;
  std::atomic<uint32_t> ready;      // the trainer holds `alive`
  std::atomic<uint32_t> activity;   // Activity
  std::atomic<uint64_t> heartbeat;  // rises at least once per layer while computing
  std::atomic<uint64_t> generation;
  std::atomic<int64_t> step;  // committed
};

}  // namespace ringmaster::agent
