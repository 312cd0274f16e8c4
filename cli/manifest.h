// SPDX-License-Identifier: Apache-2.0

// From a manifest file and the flags of the command line to a checked job. Main thread, except ParseSet
// (pure).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/training_job.h"
#include "base/result.h"

namespace ringmaster::cli {

using Sets = std::vector<std::pair<std::string, std::string>>;

// "spec.path=value" -> its two halves. kInvalid when there is no path or no '='.
Result<std::pair<std::string, std::string>> ParseSet(const std::string& text);

// Reads, decodes and validates. The error lists every problem, one per line, as FILE:LINE:COLUMN: path: what.
// workers > 0 stands for --workers: it sets replicas, and widens min and max just enough to allow that
// number.
Result<api::TrainingJob> LoadManifest(const std::string& file, const Sets& sets, int workers);

}  // namespace ringmaster::cli
