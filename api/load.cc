// SPDX-License-Identifier: Apache-2.0

#include "api/load.h"

#include <algorithm>

#include "api/check.h"
#include "api/codec.h"
#include "api/fields_status.h"
#include "api/node.h"
#include "api/rules.h"
#include "api/set.h"
#include "api/text.h"
#include "api/yaml.h"

namespace ringmaster::api {
namespace {

// Converts a tree to a job and collects all problems. `known` has the problems of the text itself.
Loaded Decode(const Node& root, std::vector<Problem> known, bool stored = false) {
  Loaded loaded;
  loaded.problems = std::move(known);
  if (stored)
    CheckStored(root, JobSchema(), loaded.problems, loaded.unknown);
  else
    CheckTree(root, JobSchema(), loaded.problems);
  ReadValue(root, loaded.job);
  const size_t before = loaded.problems.size();
  if (before < kMaxProblems) CheckRules(loaded.job, loaded.problems);
  for (size_t i = before; i < loaded.problems.size(); ++i) {
    const Mark mark = Locate(root, loaded.problems[i].path);
    loaded.problems[i].line = mark.line;
    loaded.problems[i].column = mark.column;
  }
  const Node* metadata = root.Find("metadata");
  if (metadata != nullptr && metadata->Find("generateName") != nullptr) {
    for (Problem& problem : loaded.problems) {
      if (problem.path == "metadata.name" && problem.message == "required")
        problem.message += ": only an API server makes one from metadata.generateName (`kubectl create`)";
    }
  }
  return loaded;
}

void CountCharacters(std::string_view text, std::vector<Problem>& problems) {
  for (Problem& problem : problems)
    problem.column = InCharacters(text, {problem.line, problem.column}).column;
}

}  // namespace

std::string Problem::ToString() const {
  std::string text = line > 0 ? fmt::format("{}:{}: ", line, column) : std::string();
  if (!path.empty()) text += path + ": ";
  text += message;
  // Keys of a hostile manifest must not contain terminal control sequences or line breaks.
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      printable += fmt::format("\\x{:02x}", byte);
    } else {
      printable += c;
    }
  }
  return printable;
}

namespace {

// Returns the documents without ConfigMaps: those that accompany a job, as the one with its code, are for
// clusters.
std::vector<Parsed> ParseJobs(std::string_view text) {
  std::vector<Parsed> documents = ParseYamlDocuments(text);
  std::erase_if(documents, [](const Parsed& parsed) {
    const Node* const kind = parsed.root.Find("kind");
    return parsed.whole && parsed.problems.empty() && kind != nullptr && kind->scalar == "ConfigMap";
  });
  return documents;
}

Loaded LoadParsed(std::string_view text, Parsed parsed,
                  const std::vector<std::pair<std::string, std::string>>& sets) {
  if (!parsed.whole) {
    CountCharacters(text, parsed.problems);
    return {{}, std::move(parsed.problems)};
  }
  std::erase_if(parsed.root.members, [](const Member& member) { return member.key == "status"; });
  for (const auto& [path, value] : sets) ApplySet(parsed.root, path, value, parsed.problems);
  Loaded loaded = Decode(parsed.root, std::move(parsed.problems));
  std::stable_sort(loaded.problems.begin(), loaded.problems.end(), [](const Problem& a, const Problem& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  CountCharacters(text, loaded.problems);
  return loaded;
}

}  // namespace

Loaded LoadYaml(std::string_view text, const std::vector<std::pair<std::string, std::string>>& sets) {
  std::vector<Parsed> jobs = ParseJobs(text);
  return LoadParsed(text, jobs.size() == 1 ? std::move(jobs.front()) : ParseYaml(text), sets);
}

std::vector<Loaded> LoadYamlDocuments(std::string_view text) {
  std::vector<Loaded> all;
  for (Parsed& parsed : ParseJobs(text)) all.push_back(LoadParsed(text, std::move(parsed), {}));
  return all;
}

Loaded FromJson(const Json& value) {
  auto root = NodeFromJson(value);
  if (!root.ok()) return {{}, {{"", root.error().message}}};
  return Decode(*root, {});
}

Loaded FromStored(const Json& value) {
  auto root = NodeFromJson(value);
  if (!root.ok()) return {{}, {{"", root.error().message}}};
  return Decode(*root, {}, true);
}

Json ToJson(const TrainingJob& job) { return WriteValue(job); }

std::vector<Problem> Validate(const TrainingJob& job) { return FromJson(ToJson(job)).problems; }

}  // namespace ringmaster::api
