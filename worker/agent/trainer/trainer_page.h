// SPDX-License-Identifier: Apache-2.0

// TrainerPage is the trainer's mapping of the page that it shares with its agent (shared_page.h). It shows
// that the trainer is alive and makes progress.
//
// Thread-safe, except Attach: the main thread calls it first of all, because the robust mutex belongs to the
// thread that locks it, and only the main thread lives as long as the process.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/shared_page.h"

namespace ringmaster::agent {

class TrainerPage {
 public:
  // Maps `fd` (RINGMASTER_SLOT_FD), checks that it is a page of this build, locks `alive` and sets `ready`.
  // The fd may be closed afterwards. Errors: kInvalid when it is not such a page; kConflict when another
  // process holds it; kInternal when not called on the main thread.
  static Result<TrainerPage> Attach(int fd);

  TrainerPage(TrainerPage&& other) noexcept;
  TrainerPage& operator=(TrainerPage&&) = delete;
  TrainerPage(const TrainerPage&) = delete;
  // Leaves the page mapped and `alive` locked until the process ends: unlocking would look like a death.
  ~TrainerPage() = default;

  // Call at least once per layer while computing: the agent treats a long silence as a hang.
  void Heartbeat() { page_->heartbeat.fetch_add(1, std::memory_order_relaxed); }
  // Call every few seconds while a collective waits for its peers: it shows that the wait itself is alive. A
  // separate counter, since the thread that waits is not always the one that computes.
  void StillWaiting() { page_->waits.fetch_add(1, std::memory_order_relaxed); }
  // A change of activity also counts as progress.
  void SetActivity(Activity activity) {
    page_->activity.store(static_cast<uint32_t>(activity), std::memory_order_relaxed);
  }
  void SetGeneration(uint64_t generation) { page_->generation.store(generation, std::memory_order_relaxed); }
  void SetStep(int64_t committed) { page_->step.store(committed, std::memory_order_relaxed); }
  // Adds a committed step of `micro_batches` micro-batches. One thread calls it.
  void AddStep(Duration busy, int32_t micro_batches);
  // When the agent received the notice to leave; nullopt: it has received none.
  std::optional<Time> LeavingSince() const {
    const int64_t ns = page_->leaving_since_ns.load(std::memory_order_relaxed);
    return ns == 0 ? std::nullopt : std::optional(Time(Duration(ns)));
  }

 private:
  explicit TrainerPage(SharedPage* page) : page_(page) {}

  SharedPage* page_;
};

}  // namespace ringmaster::agent
