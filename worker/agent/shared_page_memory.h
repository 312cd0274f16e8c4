// SPDX-License-Identifier: Apache-2.0

// The agent's side of the shared page (slot.h): a fresh, sealed memfd per incarnation of the trainer, so that
// nothing of a dead one can be taken for its successor. Main thread; the mutex is for the sentinel.
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/shared_page.h"

namespace ringmaster::agent {

class SharedPageMemory {
 public:
  static Result<SharedPageMemory> Create();

  SharedPageMemory(SharedPageMemory&& other) noexcept;
  SharedPageMemory& operator=(SharedPageMemory&&) = delete;
  SharedPageMemory(const SharedPageMemory&) = delete;
  // The sentinel that waits on this page must be gone.
  ~SharedPageMemory();

  int fd() const { return fd_.get(); }
  SharedPage& page() { return *page_; }
  const SharedPage& page() const { return *page_; }

 private:
  SharedPageMemory(Fd fd, SharedPage* page) : fd_(std::move(fd)), page_(page) {}

  Fd fd_;
  SharedPage* page_;
};

}  // namespace ringmaster::agent
