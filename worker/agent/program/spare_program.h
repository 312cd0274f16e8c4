// SPDX-License-Identifier: Apache-2.0

// SpareProgram is a Python that has imported the modules of launch.preload and waits to become the program of
// the next incarnation. It is started like a program, so it shares nothing with the one that runs: no device,
// no lock, no thread. Move-only; main thread only, as ProgramProcess.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/shell/program_process.h"

namespace ringmaster::agent {

class SpareProgram {
 public:
  // Writes preload.py into `folder`.
  static Status WriteRunner(const std::string& folder);
  static std::string RunnerPath(const std::string& folder);
  // `command`: of PreloadCommand. Errors: as ProgramProcess::Start.
  static Result<SpareProgram> Start(const std::vector<std::string>& command,
                                    const std::vector<std::string>& variables);

  SpareProgram(SpareProgram&& other) noexcept
      : process_(std::exchange(other.process_, std::nullopt)),
        channel_(std::move(other.channel_)),
        ready_(other.ready_) {}
  SpareProgram& operator=(SpareProgram&& other) = delete;
  ~SpareProgram();  // kills it, unless it became a program

  pid_t pid() const { return process_->pid(); }
  // The descriptor to poll for POLLIN until it is ready; then -1.
  int fd() const { return ready_ ? -1 : channel_.get(); }
  void OnReadable();
  // Whether it has imported the modules.
  bool ready() const { return ready_; }
  // Collects it if it has ended. Returns its last line on stderr; nullopt: it runs.
  std::optional<std::string> HasEnded();

  // Makes it the program, with these variables. Errors: kUnavailable when it has died or does not listen.
  Result<ProgramProcess> Become(const std::vector<std::string>& variables) &&;

 private:
  SpareProgram(ProgramProcess process, Fd channel)
      : process_(std::move(process)), channel_(std::move(channel)) {}

  std::optional<ProgramProcess> process_;
  Fd channel_;
  bool ready_ = false;
};

}  // namespace ringmaster::agent
