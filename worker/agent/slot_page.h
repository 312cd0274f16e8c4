// SPDX-License-Identifier: Apache-2.0

// The agent's side of the shared page (slot.h): a fresh, sealed memfd per incarnation of the trainer, so that
// nothing of a dead one can be taken for its successor. Main thread; the mutex is for the sentinel.
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/slot.h"

namespace ringmaster::agent {

class SlotPage {
 public:
  static Result<SlotPage> Create();

  SlotPage(SlotPage&& other) noexcept;
  SlotPage& operator=(SlotPage&&) = delete;
  SlotPage(const SlotPage&) = delete;
  // The sentinel that waits on this page must be gone.
  ~SlotPage();

  int fd() const { return fd_.get(); }
  Slot& slot() { return *slot_; }
  const Slot& slot() const { return *slot_; }

 private:
  SlotPage(Fd fd, Slot* slot) : fd_(std::move(fd)), slot_(slot) {}

  Fd fd_;
  Slot* slot_;
};

}  // namespace ringmaster::agent
