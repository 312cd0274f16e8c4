// SPDX-License-Identifier: Apache-2.0

// One run from start to end: the coordinator, the local backend with the operator's brain, and what a person
// sees of them.
//
//   main thread      signals, chaos, metrics, display (this class)
//   server's thread  agents' connections; hands progress and reports over (Inbox) and to the backend
//   loop's thread    core::Decide over the backend; orders go to the server
//
// Whatever way this process ends, its workers end with it.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/run/output_folder.h"
#include "cli/run/preflight.h"
#include "cli/run/run_options.h"

namespace ringmaster::cli {

class Session {
 public:
  // Blocks the signals that Run waits for; starts no worker yet. `resume_step` is the checkpoint's that the
  // workers will find.
  static Result<std::unique_ptr<Session>> Create(const RunOptions& options, RunPlan plan, OutputFolder folder,
                                                 int64_t resume_step);
  ~Session();

  // Until the job ended or was interrupted; the exit code. Writes summary.json.
  int Run();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::cli
