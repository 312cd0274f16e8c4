// SPDX-License-Identifier: Apache-2.0

// What an agent is told by its environment, checked before anything starts. Pure but for the look-ups that
// the caller hands in.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/agent/hang_watch.h"

namespace ringmaster::agent {

struct Config {
  std::string job;               // RINGMASTER_JOB: namespace/name
  std::string pod;               // RINGMASTER_POD
  std::string coordinator_host;  // RINGMASTER_COORDINATOR: host:port, [v6]:port
  std::string coordinator_port;
  std::string ca_file;               // RINGMASTER_CA_FILE: authority of the coordinator; empty: plain TCP
  std::string secret_file;           // RINGMASTER_SECRET_FILE: the run's secret, or the pod's projected token
  int64_t attempt = 0;               // RINGMASTER_ATTEMPT; unset: 0
  std::string node;                  // RINGMASTER_NODE; may be empty
  int32_t slots = 1;                 // RINGMASTER_SLOTS: trainers of this pod; unset: 1
  int32_t slot = 0;                  // which of them this process keeps
  std::string job_file;              // RINGMASTER_JOB_FILE: for the trainer; here only looked at
  std::string termination_log;       // RINGMASTER_TERMINATION_LOG; empty: none is written
  std::vector<std::string> trainer;  // RINGMASTER_TRAINER split at spaces, or the one beside this program
  std::vector<std::string> trainer_environment;  // "NAME=value": what its slot adds to ours
  HangLimits limits;  // RINGMASTER_STARTUP_SECONDS, RINGMASTER_STEP_SECONDS (auto | 0 | seconds)
};

using GetEnv = std::function<std::optional<std::string>(const char*)>;

// All problems in one message, each with the variable's name. `program_folder` is where the default trainer
// is looked for. Reads the job file's and the secret file's metadata.
Result<Config> LoadConfig(const GetEnv& get, const std::string& program_folder);

// The secret without the newline at its end. Read anew for every connection: projected tokens are rotated.
Result<std::string> ReadSecret(const std::string& path);

}  // namespace ringmaster::agent
