// SPDX-License-Identifier: Apache-2.0

// Follows a job of a cluster until it ends, for `ringmaster launch` and `ringmaster attach`: prints each
// change of its phase on standard error and the logs of some ranks on standard output. Nothing is polled: the
// API server sends what changes. After a broken connection it connects again, and prints no line twice.
//
// Main thread only.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/cluster/cluster.h"

namespace ringmaster::cli {

// `ranks`: whose logs are printed; with several, each line is preceded by its rank. Returns kSucceeded or
// kFailed as the job has. Errors: kNotFound if the job is deleted before it has ended.
Result<int> FollowJob(Cluster& cluster, const std::string& name, const std::vector<int>& ranks);

}  // namespace ringmaster::cli
