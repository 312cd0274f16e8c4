// SPDX-License-Identifier: Apache-2.0

// TrainerProcess is one incarnation of the trainer: its process, its shared page, its channel to the agent,
// and the detection of its death.
//
// Main thread only: the kernel binds PDEATHSIG to the thread that forks, so that no trainer outlives its
// agent, however the agent ends. The trainer leads a separate process group, which Kill kills as a whole.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/net/frame_stream.h"
#include "worker/agent/trainer/death_watch.h"
#include "worker/agent/trainer/shared_page_memory.h"

namespace ringmaster::agent {

// Environment variables of a trainer.
inline constexpr const char* kChannelFdVariable = "RINGMASTER_CHANNEL_FD";
inline constexpr const char* kPageFdVariable = "RINGMASTER_SLOT_FD";
inline constexpr const char* kMemberVariable = "RINGMASTER_MEMBER";

// What a trainer runs.
struct TrainerCommand {
  std::vector<std::string> words = {};      // words[0]: a path, or the name of a program in PATH
  std::vector<std::string> variables = {};  // "NAME=value": override the agent's environment
  // A program of a user, which trains through libringmaster: it gets the environment of a ProgramProcess.
  bool is_program = false;
};

class TrainerProcess {
  struct Private {};

 public:
  // Starts a trainer. Its environment is the agent's without the path of the secret, overridden by the
  // command's variables and the three variables above. Errors: kNotFound, and those of the system, including
  // exec.
  static Result<std::unique_ptr<TrainerProcess>> Start(const TrainerCommand& command,
                                                       const std::string& member);

  TrainerProcess(Private, SharedPageMemory page, Fd channel)
      : page_(std::move(page)), channel_(std::move(channel)) {}
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;
  // REQUIRES: the process has been reaped (the death watch waits for its end).
  ~TrainerProcess() = default;

  pid_t pid() const { return pid_; }
  const std::string& member() const { return member_; }
  FrameStream& channel() { return channel_; }
  SharedPage& page() { return page_.page(); }

  // Return the non-blocking ends of its output. Call once each.
  Fd TakeStdout() { return std::move(stdout_); }
  Fd TakeStderr() { return std::move(stderr_); }

  // Starts the death watch once the trainer is ready; otherwise does nothing.
  Status StartDeathWatchWhenReady();
  // Readable when it is dead; -1 before the death watch has started.
  int death_fd() const { return death_watch_ ? death_watch_->event_fd() : -1; }

  // Whether a signal or a tracer (perhaps a debugger) has stopped its main thread.
  struct Stopped {
    bool by_signal = false;
    bool by_tracer = false;
  };
  Stopped ReadStopped() const;

  // Sends SIGABRT to those of its processes that catch it: Python with its faulthandler prints where its
  // threads are, and ends. Returns whether there are any.
  bool ShowStacks() const;

  // Sends SIGKILL to the process and its group. REQUIRES: it has not been reaped.
  void Kill() const;

 private:
  std::string member_;
  pid_t pid_ = -1;
  SharedPageMemory page_;
  FrameStream channel_;
  Fd stdout_;
  Fd stderr_;
  std::unique_ptr<DeathWatch> death_watch_;  // after page_, so that it is destroyed first
};

}  // namespace ringmaster::agent
