// SPDX-License-Identifier: Apache-2.0

// Names that another operator gives its pods: variables of their containers, and labels. Each is replaced by
// its counterpart in a TrainingJob, or reported, since a name that no pod has is an empty text or selects
// nothing.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/convert/source.h"

namespace ringmaster::cli::convert {

// Adapts the variables of the other operator in the command, the arguments and the environment of the
// container that trains. Kubernetes replaces $(RANK) from the variables of the container, and the agent sets
// RANK for each start of the program, so the command becomes that of a shell, which reads ${RANK}. `agent`:
// the agent starts the command.
void AdaptVariables(Source& source, const std::string& command_path, const std::string& framework, bool agent,
                    Json& container);

// Adapts the labels of pods in selectors, in constraints, and where a variable or a file has the value of a
// label. `path` is that of the pod template.
void AdaptLabels(Source& source, const std::string& path, Json& pod_template);

}  // namespace ringmaster::cli::convert
