// SPDX-License-Identifier: Apache-2.0

// The trainer's hold on the page it shares with its agent (slot.h): proof of life and of progress.
//
// Attach on the main thread, first thing: the robust mutex belongs to the thread that locks it, and only the
// main thread surely lives as long as the process. All other calls are relaxed atomics, from any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "worker/agent/slot.h"

namespace ringmaster::agent {

class TrainerSlot {
 public:
  // Maps `fd` (RINGMASTER_SLOT_FD), checks that it is a page of this build, locks `alive` and says so. The fd
  // may be closed afterwards. kInvalid: not such a page; kConflict: another process holds it; kInternal: not
  // called on the main thread.
  static Result<TrainerSlot> Attach(int fd);

  TrainerSlot(TrainerSlot&& other) noexcept;
  TrainerSlot& operator=(TrainerSlot&&) = delete;
  TrainerSlot(const TrainerSlot&) = delete;
  // Leaves the page mapped and `alive` locked until the process is gone: letting go would look like death.
  ~TrainerSlot() = default;

  // At least once per layer while computing; the agent takes a long silence for a hang.
  void Heartbeat() { slot_->heartbeat.fetch_add(1, std::memory_order_relaxed); }
  // A change of activity counts as progress, too.
  void SetActivity(Activity activity) {
    slot_->activity.store(static_cast<uint32_t>(activity), std::memory_order_relaxed);
  }
  void SetGeneration(uint64_t generation) { slot_->generation.store(generation, std::memory_order_relaxed); }
  void SetStep(int64_t committed) { slot_->step.store(committed, std::memory_order_relaxed); }

 private:
  explicit TrainerSlot(Slot* slot) : slot_(slot) {}

  Slot* slot_;
};

}  // namespace ringmaster::agent
