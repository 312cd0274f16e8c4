// SPDX-License-Identifier: Apache-2.0

// Drives a Controller over a Backend: one thread, one mailbox, the only clock. Everything the controller owns
// is touched by that thread alone.
//
//   Loop loop(backend, {});
//   loop.Start();
//   ...
//   loop.Stop();   // or the destructor; answers that come later are dropped
#pragma once

#include <memory>
#include <mutex>
#include <thread>

#include "operator/control/controller.h"

namespace ringmaster::control {

class Loop {
 public:
  // `backend` must outlive the loop. Subscribes to it.
  Loop(Backend& backend, Controller::Options options);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Once. Jobs that exist already are looked at first.
  void Start();
  // Returns when the thread has ended: no command is given after that. Any thread but the loop's own.
  void Stop();
  // As after the last turn of the thread, and what has come since. Any thread.
  Load load() const;

 private:
  class Mailbox;

  void Run();
  void CarryOut(Command command);

  Backend& backend_;
  std::shared_ptr<Mailbox> mailbox_;  // shared with callbacks that may outlive us
  Controller controller_;
  mutable std::mutex mutex_;
  Load load_;
  std::thread thread_;
};

}  // namespace ringmaster::control
