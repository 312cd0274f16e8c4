// SPDX-License-Identifier: Apache-2.0

// SharedPageMemory is the agent's mapping of a shared page (shared_page.h). Each incarnation of the trainer
// gets a new sealed memfd, so that values of a dead trainer are never attributed to its successor. Main
// thread only; only the death watch locks the mutex.
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/trainer/shared_page.h"

namespace ringmaster::agent {

class SharedPageMemory {
 public:
  static Result<SharedPageMemory> Create();

  SharedPageMemory(SharedPageMemory&& other) noexcept;
  SharedPageMemory& operator=(SharedPageMemory&&) = delete;
  SharedPageMemory(const SharedPageMemory&) = delete;
  // REQUIRES: the death watch of this page has been destroyed.
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
