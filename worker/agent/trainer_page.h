// SPDX-License-Identifier: Apache-2.0

// The trainer's hold on the page it shares with its agent (slot.h): proof of life and of progress.
//
// Attach on the main thread, first thing: the robust mutex belongs to the thread that locks it, and only the
// main thread surely lives as long as the process. All other calls are relaxed atomics, from any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "worker/agent/shared_page.h"

namespace ringmaster::agent {

class TrainerPage {
 public:
  // Maps `fd` (RINGMASTER_SLOT_FD), checks that it is a page of this build, locks `alive` and says so. The fd
  // may be closed afterwards. kInvalid: not such a page; kConflict: another process holds it; kInternal: not
  // called on the main thread.
  static Result<TrainerPage> Attach(int fd);

  TrainerPage(TrainerPage&& other) noexcept;
  TrainerPage& operator=(TrainerPage&&) = delete;
  TrainerPage(const TrainerPage&) = delete;
  // Leaves the page mapped and `alive` locked until the process is gone: letting go would look like death.
  ~TrainerPage() = default;

  // At least once per layer while computing; the agent takes a long silence for a hang.
  void Heartbeat() { page_->heartbeat.fetch_add(1, std::memory_order_relaxed); }
  // A change of activity counts as progress, too.
  void SetActivity(Activity activity) {
    page_->activity.store(static_cast<uint32_t>(activity), std::memory_order_relaxed);
  }
  void SetGeneration(uint64_t generation) { page_->generation.store(generation, std::memory_order_relaxed); }
  void SetStep(int64_t committed) { page_->step.store(committed, std::memory_order_relaxed); }

 private:
  explicit TrainerPage(SharedPage* page) : page_(page) {}

  SharedPage* page_;
};

}  // namespace ringmaster::agent
