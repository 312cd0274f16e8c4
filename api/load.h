// SPDX-License-Identifier: Apache-2.0

// Loads and validates a TrainingJob. This is the entry point of api/: a newcomer reads this file, then
// training_job.h (the values) and fields.h (the tables that everything else is generated from).
//
// All errors are reported together, each with its path in the manifest and, for files, line and column:
// "spec.workers.min: must be at most spec.workers.max (got 9 > 8)". Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/training_job.h"
#include "base/result.h"

namespace ringmaster::api {

struct Problem {
  std::string path;     // spec.workers.min
  std::string message;  // must be at most spec.workers.max (got 9 > 8)
  int line = 0;         // 1-based; 0: no position in the text
  int column = 0;
  std::string ToString() const;  // "12:7: spec.workers.min: must be ..."
  bool operator==(const Problem&) const = default;
};

struct Loaded {
  TrainingJob job;  // valid only when `problems` is empty
  std::vector<Problem> problems;
  std::vector<std::string> unknown{};  // FromStored: paths of the fields that this version does not know
};

// Parses YAML (JSON is YAML), applies `sets`, sets defaults and validates. `sets` are the spec.path=value
// pairs of --set; an invalid one is a problem under its path. The text must have one document besides
// ConfigMaps, which are skipped.
Loaded LoadYaml(std::string_view text, const std::vector<std::pair<std::string, std::string>>& sets = {});

// As LoadYaml, for each document of the text that is neither empty nor a ConfigMap.
std::vector<Loaded> LoadYamlDocuments(std::string_view text);

// Reads the JSON of the API server and of the wire format.
Loaded FromJson(const Json& value);

// Reads an object that the API server has stored, as FromJson. A newer CRD may have admitted more than this
// version knows, so unknown fields are no problems, and labels and annotations, which others set, are not
// checked.
Loaded FromStored(const Json& value);

// Omits values that are empty or equal to the default. FromJson(ToJson(job)) == job.
Json ToJson(const TrainingJob& job);

// Checks the rules over several fields. LoadYaml and FromJson call it. REQUIRES: defaults are set.
std::vector<Problem> Validate(const TrainingJob& job);

// Parses "3e-4". Errors: kInvalid when the text is not a finite decimal number.
Result<double> ParseDecimal(std::string_view text);

// The reference of all fields as Markdown, from the field tables: the pages of docs/reference.
struct ReferencePage {
  std::string file;  // "api.md"
  std::string text;
};
std::vector<ReferencePage> ReferencePages();

}  // namespace ringmaster::api
