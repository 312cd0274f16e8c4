// SPDX-License-Identifier: Apache-2.0

// The runtime of a TrainJob: its framework, its pods, and what it sets for the whole job. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/node.h"
#include "base/json.h"
#include "cli/convert/source.h"

namespace ringmaster::cli::convert {

// The replicated job, and its container, that train.
inline constexpr const char* kNode = "node";

struct ReplicatedJob {
  std::string name;
  std::string path;  // of its pod template in the source
  Json pod;
};

struct TrainRuntime {
  std::string framework;        // of the TrainingJob
  std::string mpi;              // openmpi | mpich | intel; framework mpi
  std::string processes;        // per pod: a number, auto, gpu or cpu; empty: not given
  std::string processes_path;   // in the source
  bool launcher_works = false;  // ranks run in the pod of the launcher, too
  int64_t nodes = 1;
  ReplicatedJob trainer;              // framework mpi: it starts the ranks
  std::optional<ReplicatedJob> node;  // framework mpi: the pods that the launcher reaches
};

// A ClusterTrainingRuntime that Kubeflow Trainer installs.
struct InstalledRuntime {
  Json manifest;
  std::string image;
};
// The release that FindInstalledRuntime knows.
inline constexpr const char* kTrainerRelease = "2.3";
std::optional<InstalledRuntime> FindInstalledRuntime(const std::string& name);

// Reads the runtime of the source, and sets what it decides for the whole job: metadata, scheduling,
// restarts. The result counts only when the source was not refused.
TrainRuntime ReadRuntime(Source& source, Json& job);

// Returns what to write in place of a field of the runtime; empty: there is no remedy.
std::string RemedyOfRuntime(const std::string& path);

}  // namespace ringmaster::cli::convert
