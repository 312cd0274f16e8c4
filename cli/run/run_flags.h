// SPDX-License-Identifier: Apache-2.0

// The flags of a run on this machine, which `ringmaster run` and `ringmaster launch --local` share, and the
// run itself. Main thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ringmaster::cli {

struct RunFlags {
  std::string file;
  std::string manifest;  // text to use in place of the file, which is then the name of the command
  int workers = 0;
  std::string out;
  std::vector<std::string> sets;
  bool fresh = false;
  std::string chaos = "none";
  uint64_t chaos_seed = 1;
  std::string progress = "auto";
  bool tensorboard = false;
  bool digests = false;
  std::string mlflow;
  std::string metrics_address;
  std::optional<std::string> ui;
};

// Adds all flags but those that choose the job: file, workers and sets. REQUIRES: `flags` outlives `command`.
std::vector<CLI::Option*> AddRunFlags(CLI::App& command, RunFlags& flags);

// Runs all checks that need no process, then the session. Returns the exit code.
int RunJob(const RunFlags& flags);

}  // namespace ringmaster::cli
