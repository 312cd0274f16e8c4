// SPDX-License-Identifier: Apache-2.0

#include "cli/manifest.h"

#include <algorithm>
#include <iterator>

#include "api/load.h"
#include "base/file.h"

namespace ringmaster::cli {
namespace {

constexpr size_t kMaxManifestBytes = size_t{4} << 20;

// Returns the --set pairs that are equivalent to `--workers N`.
Sets WorkerSets(const api::Workers& workers, int n) {
  const std::string text = std::to_string(n);
  Sets sets = {{"spec.workers.replicas", text}};
  if (workers.min && *workers.min > n) sets.emplace_back("spec.workers.min", text);
  if (workers.max && *workers.max < n) sets.emplace_back("spec.workers.max", text);
  return sets;
}

Error Problems(const std::string& file, const std::vector<api::Problem>& problems) {
  std::string text;
  for (const api::Problem& problem : problems) {
    if (!text.empty()) text += "\n            ";  // aligned with the first one, after "ringmaster: "
    text += file + ":" + (problem.line > 0 ? "" : " ") + problem.ToString();
  }
  return {Code::kInvalid, text};
}

}  // namespace

Result<std::pair<std::string, std::string>> ParseSet(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{Code::kInvalid,
                 "--set " + text + ": expected spec.path=value, for example --set spec.training.steps=100"};
  return std::make_pair(text.substr(0, equals), text.substr(equals + 1));
}

Result<std::string> ReadManifest(const std::string& file) {
  auto text = ReadFile(file == "-" ? "/dev/stdin" : file, kMaxManifestBytes);
  if (!text.ok()) return Error{text.error().code, text.error().message + "; give the path of a manifest"};
  return text;
}

Result<std::vector<api::TrainingJob>> LoadManifests(const std::string& file) {
  RM_ASSIGN(const std::string text, ReadManifest(file));
  std::vector<api::TrainingJob> jobs;
  std::vector<api::Problem> problems;
  for (api::Loaded& loaded : api::LoadYamlDocuments(text)) {
    std::move(loaded.problems.begin(), loaded.problems.end(), std::back_inserter(problems));
    jobs.push_back(std::move(loaded.job));
  }
  if (jobs.empty()) problems.push_back({"", "there is no document"});
  if (!problems.empty()) return Problems(file, problems);
  return jobs;
}

Result<api::TrainingJob> LoadManifest(const std::string& file, const Sets& sets, int workers) {
  auto text = ReadFile(file == "-" ? "/dev/stdin" : file, kMaxManifestBytes);
  if (!text.ok())
    return Error{text.error().code, text.error().message + "; give the path of a TrainingJob manifest"};
  return ParseManifest(file, *text, sets, workers);
}

Result<api::TrainingJob> ParseManifest(const std::string& name, const std::string& text, const Sets& sets,
                                       int workers) {
  api::Loaded loaded = api::LoadYaml(text, sets);
  if (loaded.problems.empty() && workers > 0) {
    Sets all = sets;
    for (auto& set : WorkerSets(loaded.job.spec.workers, workers)) all.push_back(std::move(set));
    loaded = api::LoadYaml(text, all);
  }
  if (!loaded.problems.empty()) return Problems(name, loaded.problems);
  return loaded.job;
}

}  // namespace ringmaster::cli
