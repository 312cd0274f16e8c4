// SPDX-License-Identifier: Apache-2.0

// `kubectl ringmaster diagnose`: what stands between a job and its next step, check by check, in the order in
// which a job gets through them. Pure functions over what the API server said.
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
  Json lease;                // of the operator; null: not known, see lease_problem
  std::string lease_problem;
  std::vector<Json> nodes;  // those that the pods are on; may be empty when we may not read nodes
  std::string nodes_problem;
};

enum class Verdict { kGood, kBad, kUnknown, kSkipped };

struct Check {
  std::string name;
  Verdict verdict = Verdict::kGood;
  std::string finding;  // what was seen
  std::string remedy;   // what to do; empty where nothing is wrong
};

std::vector<Check> Diagnose(const Evidence& evidence, kube::WallTime now);

// One line per check, the remedy below it.
std::string DiagnosisText(const std::vector<Check>& checks);

}  // namespace ringmaster::cli
