// SPDX-License-Identifier: Apache-2.0

// Loop: runs a Controller over a Backend with one thread and a mailbox. Only that thread uses the controller.
// Thread-safe.
//
//   Loop loop(backend, {});
//   loop.Start();
//   ...
//   loop.Stop();   // or the destructor; later answers are dropped
#pragma once

#include <memory>
#include <thread>

#include "base/mutex.h"
#include "base/thread_annotations.h"
#include "operator/control/controller.h"

namespace ringmaster::control {

class Loop {
 public:
  // Subscribes to `backend`, which must outlive the loop.
  Loop(Backend& backend, Controller::Options options);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Starts the thread, which first reconciles the existing jobs. Call once.
  void Start();
  // Ends the thread and waits for it. No command follows. Must not be called from the loop's own thread.
  void Stop();
  // Returns the load after the thread's last turn plus the changes received since.
  Load load() const;

 private:
  class Mailbox;

  void Run();
  void CarryOut(Command command);

  Backend& backend_;
  std::shared_ptr<Mailbox> mailbox_;  // shared with callbacks that may outlive the loop
  Controller controller_;
  mutable Mutex mutex_;
  Load load_ RM_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ringmaster::control
