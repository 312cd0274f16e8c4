// SPDX-License-Identifier: Apache-2.0

// The user's PodTemplateSpec. ReadTemplate checks its shape, so that the rest of wiring can rely on it. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

inline constexpr const char* kTemplatePath = "spec.workers.template";

struct Template {
  Json value;                         // an object; parts with a wrong shape are omitted
  std::string worker;                 // the container that trains
  std::vector<std::string> problems;  // what was omitted, and why
};

Template ReadTemplate(const api::TrainingJob& job);

// Returns the template's entry for the container that trains, or nullptr.
const Json* UserContainer(const Template& user);

}  // namespace ringmaster::wiring
