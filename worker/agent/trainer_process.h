// SPDX-License-Identifier: Apache-2.0

// One incarnation of the trainer: the process, its slot, its channel and its death, seen from the agent.
//
// Start it on the main thread: the kernel ties PDEATHSIG to the thread that forks, so that no trainer
// outlives its agent, however the agent ends. The trainer leads a process group of its own, which Kill ends
// as a whole.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/death_watch.h"
#include "worker/agent/frame_stream.h"
#include "worker/agent/shared_page_memory.h"

namespace ringmaster::agent {

// Variables that a trainer finds in its environment.
inline constexpr const char* kChannelFdVariable = "RINGMASTER_CHANNEL_FD";
inline constexpr const char* kPageFdVariable = "RINGMASTER_SLOT_FD";
inline constexpr const char* kMemberVariable = "RINGMASTER_MEMBER";

class TrainerProcess {
  struct Private {};

 public:
  // The environment is ours, less the secret's place, plus `variables` ("NAME=value", in place of ours of
  // that name) and the three above. The error is the system's, exec's included.
  static Result<std::unique_ptr<TrainerProcess>> Start(const std::vector<std::string>& command,
                                                       const std::vector<std::string>& variables,
                                                       const std::string& member);

  TrainerProcess(Private, SharedPageMemory page, Fd channel)
      : page_(std::move(page)), channel_(std::move(channel)) {}
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;
  // It must have been reaped (the sentinel waits for its end).
  ~TrainerProcess() = default;

  pid_t pid() const { return pid_; }
  const std::string& member() const { return member_; }
  FrameStream& channel() { return channel_; }
  const SharedPage& page() const { return page_.page(); }

  // Non-blocking ends of its output, to be taken once.
  Fd TakeStdout() { return std::move(stdout_); }
  Fd TakeStderr() { return std::move(stderr_); }

  // Puts the sentinel on its post as soon as the trainer has said `ready`; nothing to do before and after.
  Status StartDeathWatchWhenReady();
  // Readable when it is dead; -1 while nobody watches.
  int death_fd() const { return death_watch_ ? death_watch_->event_fd() : -1; }

  // True while a signal or a tracer keeps its main thread stopped. With a tracer: it may be a debugger.
  struct Stopped {
    bool by_signal = false;
    bool by_tracer = false;
  };
  Stopped ReadStopped() const;

  // SIGKILL for the process and its group. Safe as long as it has not been reaped.
  void Kill() const;

 private:
  std::string member_;
  pid_t pid_ = -1;
  SharedPageMemory page_;
  FrameStream channel_;
  Fd stdout_;
  Fd stderr_;
  std::unique_ptr<DeathWatch> death_watch_;  // after page_: it is gone first
};

}  // namespace ringmaster::agent
