// SPDX-License-Identifier: Apache-2.0

// The user's PodTemplateSpec: its shape is checked here and nowhere else, so that everybody behind may rely
// on it. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

inline constexpr const char* kTemplatePath = "spec.workers.template";

struct Template {
  Json value;                         // an object; parts of a wrong shape are left out
  std::string worker;                 // the container that trains
  std::vector<std::string> problems;  // what was left out, and why
};

Template ReadTemplate(const api::TrainingJob& job);

// The template's part of the container that trains, or nullptr.
const Json* UserContainer(const Template& user);

}  // namespace ringmaster::wiring
