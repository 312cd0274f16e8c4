// SPDX-License-Identifier: Apache-2.0

// One run of `ringmaster run` from start to end: the coordinator, the operator's control loop over the local
// backend, and the output.
//
//   main thread     signals, chaos, metrics, display (this class)
//   server thread   connections of the agents; passes progress and reports to the Inbox and to the backend
//   loop thread     core::Decide over the backend; passes gang orders to the server
//
// When this process ends, in whatever way, its workers end too.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/run/output_folder.h"
#include "cli/run/preflight.h"
#include "cli/run/run_options.h"

namespace ringmaster::cli {

class Session {
 public:
  // Blocks the signals that Run waits for. Does not start a worker. `resume_step` is the step of the
  // checkpoint from which the workers will continue.
  static Result<std::unique_ptr<Session>> Create(const RunOptions& options, RunPlan plan, OutputFolder folder,
                                                 int64_t resume_step);
  ~Session();

  // Runs until the job ends or is interrupted. Writes summary.json. Returns the exit code.
  int Run();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringmaster::cli
