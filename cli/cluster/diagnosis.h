// SPDX-License-Identifier: Apache-2.0

// The checks of `kubectl ringmaster diagnose`: what prevents a job from committing its next step, in the
// order in which a starting job passes them. Pure functions over API objects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::cli {

struct Evidence {
  Json job;
  std::vector<Json> pods;    // as Cluster::PodsOf sorts them
  std::vector<Json> events;  // of the job, oldest first
  Json lease;                // the operator's; null: could not be read, see lease_problem
  std::string lease_problem;
  std::vector<Json> nodes;    // the nodes of the pods
  std::string nodes_problem;  // why a node could not be read; empty when all were read
};

enum class CheckResult { kPass, kFail, kUnknown, kSkipped };

struct Check {
  std::string name;
  CheckResult result = CheckResult::kPass;
  std::string finding;  // what the check observed
  std::string remedy;   // what to do; empty when the check passed
};

std::vector<Check> Diagnose(const Evidence& evidence, kube::WallTime now);

// Returns one line per check, followed by its remedy on the next line.
std::string DiagnosisText(const std::vector<Check>& checks);

}  // namespace ringmaster::cli
