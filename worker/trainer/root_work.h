// SPDX-License-Identifier: Apache-2.0

// Long work of one rank, such as I/O on a slow disk, that all other ranks wait for.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

// Work on a separate thread, which the owner may leave running while it does something else. Not thread-safe.
class BackgroundWork {
 public:
  explicit BackgroundWork(std::function<void()> work);
  ~BackgroundWork();  // waits for the end of the work
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // Waits up to `limit` and returns whether the work is done. Rethrows an exception of the work.
  bool Wait(Duration limit);

 private:
  void Run();

  const std::function<void()> work_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ RM_GUARDED_BY(mutex_) = false;
  std::exception_ptr thrown_ RM_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all other members
};

// Collective: returns on all ranks when `done`, which only root calls, has returned true. It waits for a
// moment each time it is called. The other ranks wait for root without a deadline (worker/fabric/stall.h).
// Errors: kCancelled on root soon after *cancel becomes true; the work behind `done` may then go on. Those of
// the communicator.
Status WaitForRoot(fabric::Communicator* comm, int root, const std::atomic<bool>* cancel,
                   const std::function<bool()>& done);

}  // namespace ringmaster::trainer
