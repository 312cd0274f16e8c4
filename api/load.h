// SPDX-License-Identifier: Apache-2.0

// From text to a checked TrainingJob. Errors are collected, not only the first, each with its path in the
// manifest and, for files, line and column: "spec.workers.min: must be at most spec.workers.max (got 9 > 8)".
// Pure functions.
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
  int line = 0;         // 1-based; 0 when the text has no such place
  int column = 0;
  std::string ToString() const;  // "12:7: spec.workers.min: must be ..."
  bool operator==(const Problem&) const = default;
};

struct Loaded {
  TrainingJob job;  // meaningful only when there is no problem
  std::vector<Problem> problems;
};

// YAML (or JSON, which is YAML) -> decode -> set -> defaults -> validate. `sets` are spec.path=value pairs of
// --set, applied before defaults; a bad one is a problem under its own path. One document per text.
Loaded LoadYaml(std::string_view text, const std::vector<std::pair<std::string, std::string>>& sets = {});

// The API server's and the wire's form.
Loaded FromJson(const Json& value);

// Omits what equals the default or is empty; FromJson(ToJson(job)) == job.
Json ToJson(const TrainingJob& job);

// Cross-field rules over a decoded job with defaults set. LoadYaml and FromJson call it.
std::vector<Problem> Validate(const TrainingJob& job);

// "3e-4" -> 0.0003. kInvalid when it is not a finite decimal number.
Result<double> ParseDecimal(std::string_view text);

// The reference of all fields as Markdown, from the field tables: the pages of docs/reference.
struct ReferencePage {
  std::string file;  // "api.md"
  std::string text;
};
std::vector<ReferencePage> ReferencePages();

}  // namespace ringmaster::api
