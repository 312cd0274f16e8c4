// SPDX-License-Identifier: Apache-2.0

// Loads a manifest file, applies the flags of the command line, and validates the result. Main thread only,
// except ParseSet (pure).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/training_job.h"
#include "base/result.h"

namespace ringmaster::cli {

using Sets = std::vector<std::pair<std::string, std::string>>;

// Splits "spec.path=value". Errors: kInvalid when the path or the '=' is missing.
Result<std::pair<std::string, std::string>> ParseSet(const std::string& text);

// Reads, decodes and validates a manifest; "-" is standard input. The error lists every problem, one per
// line, as FILE:LINE:COLUMN: path: what. `workers` > 0 is the value of --workers: it sets replicas, and
// widens min and max just enough to allow that number.
Result<api::TrainingJob> LoadManifest(const std::string& file, const Sets& sets, int workers);

// As LoadManifest, for the text of a manifest; `name` precedes its problems.
Result<api::TrainingJob> ParseManifest(const std::string& name, const std::string& text, const Sets& sets,
                                       int workers);

// Reads and validates all manifests of a file; "-" is standard input. The error is that of LoadManifest.
Result<std::vector<api::TrainingJob>> LoadManifests(const std::string& file);

// Reads a manifest file; "-" is standard input. The error names the remedy.
Result<std::string> ReadManifest(const std::string& file);

}  // namespace ringmaster::cli
