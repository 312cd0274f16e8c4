// SPDX-License-Identifier: Apache-2.0

// The agent's configuration from its environment, checked before anything starts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/agent/trainer/hang_watch.h"
#include "worker/agent/trainer/trainer_process.h"

namespace ringmaster::agent {

struct Config {
  std::string job;               // RINGMASTER_JOB: namespace/name
  std::string pod;               // RINGMASTER_POD
  std::string coordinator_host;  // RINGMASTER_COORDINATOR: host:port, [v6]:port
  std::string coordinator_port;
  std::string ca_file;      // RINGMASTER_CA_FILE: certificate authority of the coordinator; empty: plain TCP
  std::string secret_file;  // RINGMASTER_SECRET_FILE: the run's secret, or the pod's projected token
  int64_t attempt = 0;      // RINGMASTER_ATTEMPT; unset: 0
  std::string node;         // RINGMASTER_NODE; may be empty
  int32_t slots = 1;        // RINGMASTER_SLOTS: trainers of this pod; unset: 1
  int32_t slot = 0;         // which of them this process supervises
  int doorbell = -1;        // of the pod's relay (slot_relay.h); -1: this process connects by itself
  std::string job_file;     // RINGMASTER_JOB_FILE: read by the trainer; here only checked
  std::string termination_log;  // RINGMASTER_TERMINATION_LOG; empty: no termination message
  // Its words: those of `ringmaster-agent train -- COMMAND ARGS...`, or RINGMASTER_TRAINER split at spaces;
  // neither: the native trainer next to this program.
  TrainerCommand trainer;
  std::vector<std::string> program;  // of `ringmaster-agent run -- COMMAND ARGS...`; empty: a trainer
  std::string framework;             // RINGMASTER_FRAMEWORK: whose variables the program gets
  std::string role;                  // RINGMASTER_ROLE: of this pod; unset: worker
  std::string address;               // RINGMASTER_ADDRESS: where other workers reach this pod
  // RINGMASTER_STOP_SECONDS: from SIGTERM to SIGKILL of the program. A trainer that is a program has this
  // long to end after the job has.
  Duration stop_grace = seconds(30);
  int32_t port_base = 0;      // RINGMASTER_PORT_BASE: the first port of this pod; 0: any free port
  bool prefix_lines = false;  // of a program's output, with its rank or slot
  std::vector<std::string>
      preload;                // RINGMASTER_PRELOAD: Python modules for a spare, with commas between them
  std::string socket_folder;  // RINGMASTER_SOCKET_FOLDER; empty: a folder for temporary files
  // RINGMASTER_MPI: openmpi | mpich | intel, or gloo of framework horovod. The program is a launcher, which
  // starts ranks in all pods; empty: it is not.
  std::string mpi;
  int32_t mpi_slots = 1;  // RINGMASTER_MPI_SLOTS: ranks in each pod
  HangLimits limits;      // RINGMASTER_STARTUP_SECONDS, RINGMASTER_STEP_SECONDS (auto | 0 | seconds)
  Duration silence = seconds(1800);  // of a program: RINGMASTER_SILENCE_SECONDS; 0: no limit
};

using GetEnv = std::function<std::optional<std::string>(const char*)>;

// The command of a user; both empty: the native trainer.
struct CommandLine {
  std::vector<std::string> program = {};  // after `run --`: it knows nothing of the agent
  std::vector<std::string> trainer = {};  // after `train --`: it trains through libringmaster
};

// Parses the words after the agent's name. Errors: kInvalid with the usage.
Result<CommandLine> ParseCommandLine(const std::vector<std::string>& words);

// Reads the configuration through `get`, and checks that the trainer can run and that the files are readable.
// `program_folder` contains the native trainer. A program needs no job file. Errors: kInvalid lists all
// problems, each with the variable's name.
Result<Config> LoadConfig(const GetEnv& get, const std::string& program_folder, CommandLine command = {});

// Reads the secret, without trailing newlines. Called for every connection, because projected tokens rotate.
Result<std::string> ReadSecret(const std::string& path);

}  // namespace ringmaster::agent
