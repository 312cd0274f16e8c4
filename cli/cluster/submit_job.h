// SPDX-License-Identifier: Apache-2.0

// Creates a job of `ringmaster launch` on a cluster, and the ConfigMap with its code. Main thread only.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "cli/cluster/cluster.h"

namespace ringmaster::cli {

struct Submitted {
  std::string uid;
  bool code_was_there = false;  // an earlier job brought the same code, which was not sent again
};

// `code`: the ConfigMap, whose name depends on its content; null: none. All jobs that use it own it, so it
// goes with the last of them. Errors: kAlreadyExists with the remedy if the namespace has a job of this name.
// After an error no job was created, and code that this call sent is deleted; only after kAmbiguous both may
// exist.
Result<Submitted> SubmitJob(Cluster& cluster, const Json& job, const Json& code);

}  // namespace ringmaster::cli
