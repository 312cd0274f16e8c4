// SPDX-License-Identifier: Apache-2.0

// The manifests of jobs/, each with the context that its first lines name: "# gang: native", "# attempt: 3",
// "# excluded: node-a,node-b", "# host-ports: 23000". The flags of `ringmaster render` have the same names,
// so that e2e/wiring renders the same.
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
  std::string refused_by = "none";  // the mildest Pod Security level that does
};

// Sorted by name. Fails the test when a manifest is not valid.
std::vector<Case> AllCases();
Case LoadCase(const std::string& name);

// A native job with nothing but what is required, and `spec` (YAML, two spaces deep) added.
api::TrainingJob JobWith(std::string_view spec = "", std::string_view workers = "{replicas: 2}");

Context PlainContext();

}  // namespace ringmaster::wiring
