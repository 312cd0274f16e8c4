// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/root_work.h"

#include <array>
#include <utility>

namespace ringmaster::trainer {

BackgroundWork::BackgroundWork(std::function<void()> work)
    : work_(std::move(work)), thread_([this] { Run(); }) {}

BackgroundWork::~BackgroundWork() { thread_.join(); }

bool BackgroundWork::Wait(Duration limit) {
  const Time deadline = Now() + limit;
  MutexLock lock(mutex_);
  while (!done_) {
    if (!changed_.WaitUntil(lock, deadline) && !done_) return false;
  }
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  return true;
}

void BackgroundWork::Run() {
  std::exception_ptr thrown;
  try {
    work_();
  } catch (...) {
    thrown = std::current_exception();
  }
  const MutexLock lock(mutex_);
  thrown_ = thrown;
  done_ = true;
  changed_.NotifyAll();
}

Status WaitForRoot(fabric::Communicator* comm, int root, const std::atomic<bool>* cancel,
                   const std::function<bool()>& done) {
  if (comm->rank() == root) {
    while (!done()) {
      if (cancel->load(std::memory_order_relaxed))
        return Error{Code::kCancelled, "the generation ended while a disk was awaited"};
    }
  }
  std::array<std::byte, 1> nothing{};
  return comm->Broadcast(nothing, root);
}

}  // namespace ringmaster::trainer
