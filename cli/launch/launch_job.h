// SPDX-License-Identifier: Apache-2.0

// The TrainingJob that `ringmaster launch` writes for a command. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/launch/script.h"

namespace ringmaster::cli::launch {

struct LaunchRequest {
  std::string name;
  int workers = 1;
  int min = 0;            // 0: not elastic
  int gpus = 0;           // of each worker
  std::string processes;  // ranks of each worker: a number or "gpu"; empty: one per GPU
  std::string image;      // empty: none, for this machine only
  std::string runtime;    // RuntimeClass; empty: the cluster's default
  std::string cpus;       // Kubernetes quantities; empty: not set
  std::string memory;
  std::optional<int> max_restarts;
  Training training;
  std::vector<std::string> command;
  std::string code;  // ConfigMap with the code; empty: the image has it
};

// The code is unpacked here, and the command runs here.
inline constexpr const char* kWorkspace = "/workspace";

// Reads "8" or torchrun's "4:8" (minimum and maximum). Errors: kInvalid names the flag.
Status ReadWorkers(const std::string& text, LaunchRequest* request);

// Returns the manifest. It is valid if the request is: the caller validates it.
Json LaunchJob(const LaunchRequest& request);

}  // namespace ringmaster::cli::launch
