// SPDX-License-Identifier: Apache-2.0

// SharedPage is memory that an agent and its trainer share (a sealed memfd): a robust mutex that reveals the
// trainer's death, and progress counters that reveal hangs. Plain data; both sides are of the same build.
//
// The trainer's main thread locks `alive` at start and never unlocks it. When the trainer dies, the kernel
// marks the mutex in do_exit before it frees memory. So the agent learns of a SIGKILL in well under a
// millisecond, however large the trainer is. Sockets close and SIGCHLD arrives only afterwards.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace ringmaster::agent {

enum class Activity : uint32_t {
  kStarting,    // loading, allocating: the startup limit applies
  kComputing,   // own work: a long time without a heartbeat is a hang
  kExchanging,  // in a collective: a peer may have died, and the order to abort may take long to arrive
  kWaiting,     // for orders, or for peers at the end: never a hang
  kSaving,      // writing a checkpoint
  kReading,     // waiting for training data: storage on a network may be slow for all workers at once
  kDevice,      // waiting for queued work of the device: the driver blocks, and no code of this project runs
};

struct SharedPage {
  static constexpr uint64_t kMagic = 0x52494e474d535431;  // "RINGMST1"
  uint64_t magic;
  pthread_mutex_t alive;
  std::atomic<uint32_t> ready;      // the trainer holds `alive`
  std::atomic<uint32_t> activity;   // Activity
  std::atomic<uint64_t> heartbeat;  // increases at least once per layer while computing
  std::atomic<uint64_t> waits;      // increases every few seconds while a collective waits for peers
  std::atomic<uint64_t> generation;
  std::atomic<int64_t> step;  // committed
  // Of all committed steps: see rendezvous::BusyTime. The agent takes `longest_ns` and leaves 0.
  std::atomic<int64_t> busy_steps;
  std::atomic<int64_t> busy_ns;
  std::atomic<int64_t> longest_ns;
  std::atomic<int32_t> micro_batches;  // of the newest step
  // When the agent received the notice to leave, such as SIGTERM of a drained node: nanoseconds of the
  // monotonic clock, which all processes of a machine share. 0: it has received none.
  std::atomic<int64_t> leaving_since_ns;
};

}  // namespace ringmaster::agent
