// SPDX-License-Identifier: Apache-2.0

// The manifests of jobs/. The first lines of each set its context: "# gang: native", "# attempt: 3", "#
// excluded: node-a,node-b", "# host-ports: 23000". The flags of `ringmaster render` have the same names, so
// that e2e/wiring renders the same objects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/training_job.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

struct Case {
  std::string name;
  api::TrainingJob job;
  Context context;
};

// Returns all cases sorted by name. Fails the test when a manifest is invalid.
std::vector<Case> AllCases();
Case LoadCase(const std::string& name);

// Returns a minimal native job plus `spec` (YAML, indented by two spaces).
api::TrainingJob JobWith(std::string_view spec = "", std::string_view workers = "{replicas: 2}");

Context PlainContext();

}  // namespace ringmaster::wiring
