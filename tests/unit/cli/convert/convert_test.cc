// SPDX-License-Identifier: Apache-2.0

// The manifests of jobs/, converted and compared with reviewed files: the remarks, then the TrainingJobs.
// RINGMASTER_UPDATE=1 writes the files.
#include "cli/convert/convert.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "api/load.h"
#include "api/yaml.h"
#include "api/yaml_text.h"
#include "base/file.h"

namespace ringmaster::cli::convert {
namespace {

constexpr const char* kFolder = "tests/unit/cli/convert";

struct Case {
  std::string name;
  std::string text;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kFolder) + "/jobs")) {
    auto text = ReadFile(entry.path().string());
    EXPECT_TRUE(text.ok());
    if (text.ok()) cases.push_back({entry.path().filename().string(), *text});
  }
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return cases;
}

std::string Everything(const std::vector<Converted>& all) {
  std::string text;
  for (const Converted& converted : all) {
    text += fmt::format("# {}\n", converted.name);
    for (const Remark& remark : converted.remarks) {
      text += fmt::format("# {}:{}: {}: {}: {}\n", remark.mark.line, remark.mark.column,
                          remark.refused ? "error" : "note", remark.path, remark.message);
    }
    if (!converted.job.is_null()) text += "---\n" + api::YamlText(converted.job);
  }
  return text;
}

TEST(Convert, EveryManifestGivesItsFile) {
  const std::vector<Case> cases = Cases();
  EXPECT_GE(cases.size(), 15u);
  for (const Case& item : cases) {
    const std::string path = fmt::format("{}/golden/{}", kFolder, item.name);
    const std::string text = Everything(ConvertManifests(item.text));
    if (std::getenv("RINGMASTER_UPDATE") != nullptr) {
      ASSERT_TRUE(WriteFileAtomic(path, text).ok());
    }
    const auto wanted = ReadFile(path);
    ASSERT_TRUE(wanted.ok()) << wanted.error().message;
    EXPECT_EQ(*wanted, text) << path << ": review the change; RINGMASTER_UPDATE=1 writes it";
  }
}

TEST(Convert, EveryResultIsAValidJob) {
  int jobs = 0;
  for (const Case& item : Cases()) {
    for (const Converted& converted : ConvertManifests(item.text)) {
      if (converted.job.is_null()) {
        EXPECT_FALSE(converted.remarks.empty()) << item.name;
        continue;
      }
      ++jobs;
      for (const api::Problem& problem : api::LoadYaml(api::YamlText(converted.job)).problems)
        ADD_FAILURE() << item.name << ": " << problem.ToString();
    }
  }
  EXPECT_GE(jobs, 10);
}

TEST(Convert, EveryPositionIsInTheText) {
  for (const Case& item : Cases()) {
    const auto lines = std::count(item.text.begin(), item.text.end(), '\n');
    for (const Converted& converted : ConvertManifests(item.text)) {
      for (const Remark& remark : converted.remarks) {
        EXPECT_GT(remark.mark.line, 0) << item.name << " " << remark.path;
        EXPECT_LE(remark.mark.line, lines) << item.name << " " << remark.path;
      }
    }
  }
}

// Calls visit with the document and the path of each object whose members the converter reads one by one.
template <class Visit>
void EachObject(Json& root, Json& node, const std::string& path, const Visit& visit) {
  if (path.ends_with(".template") || path.ends_with(".resourcesPerNode") || path.starts_with("status"))
    return;
  if (path.ends_with(".labels") || path.ends_with(".annotations")) return;
  if (node.is_object()) {
    visit(root, node, path);
    for (auto& [key, value] : node.items())
      EachObject(root, value, path.empty() ? key : path + "." + key, visit);
  }
}

TEST(Convert, AFieldThatNobodyKnowsIsReported) {
  int fields = 0;
  for (const Case& item : Cases()) {
    for (const api::Parsed& document : api::ParseYamlDocuments(item.text)) {
      Json root = NodeToJson(document.root);
      const std::vector<Converted> before = ConvertManifests(root.dump());
      if (before.size() != 1 || before[0].job.is_null() || root["kind"] == "List") continue;
      EachObject(root, root, "", [&](Json& job, Json& object, const std::string& path) {
        object["surprise"] = 1;
        const std::string added = path.empty() ? "surprise" : path + ".surprise";
        const std::vector<Converted> after = ConvertManifests(job.dump());
        object.erase("surprise");
        ASSERT_EQ(after.size(), 1u);
        const auto& remarks = after[0].remarks;
        const bool reported = std::any_of(remarks.begin(), remarks.end(), [&](const Remark& remark) {
          return added.starts_with(remark.path);
        });
        EXPECT_TRUE(reported) << item.name << ": " << added;
        ++fields;
      });
    }
  }
  EXPECT_GE(fields, 50);
}

// Calls visit with the path of each object of a runtime whose members the converter reads one by one.
template <class Visit>
void EachObjectOfRuntime(Json& node, const std::string& path, const Visit& visit) {
  for (const char* whole : {".template.spec.template", ".labels", ".annotations", ".jax", ".successPolicy"}) {
    if (path.ends_with(whole)) return;
  }
  if (path == "runtime.metadata" || path.find(".dependsOn[") != path.npos) return;
  if (node.is_object()) {
    visit(node, path);
    for (auto& [key, value] : node.items()) EachObjectOfRuntime(value, path + "." + key, visit);
  }
  for (size_t i = 0; node.is_array() && i < node.size(); ++i)
    EachObjectOfRuntime(node[i], fmt::format("{}[{}]", path, i), visit);
}

TEST(Convert, AnUnknownFieldOfARuntimeIsReported) {
  int fields = 0;
  for (const Case& item : Cases()) {
    if (!item.name.starts_with("trainjob-")) continue;
    Json list = {{"kind", "List"}, {"items", Json::array()}};
    for (const api::Parsed& document : api::ParseYamlDocuments(item.text))
      list["items"].push_back(NodeToJson(document.root));
    const std::vector<Converted> before = ConvertManifests(list.dump());
    const bool whole = std::all_of(before.begin(), before.end(),
                                   [](const Converted& converted) { return !converted.job.is_null(); });
    if (!whole) continue;
    for (Json& runtime : list["items"]) {
      if (runtime["kind"] == "TrainJob") continue;
      EachObjectOfRuntime(runtime, "runtime", [&](Json& object, const std::string& path) {
        object["surprise"] = 1;
        const std::vector<Converted> after = ConvertManifests(list.dump());
        object.erase("surprise");
        const std::string added = path + ".surprise";
        const bool reported = std::any_of(after.begin(), after.end(), [&](const Converted& converted) {
          return std::any_of(converted.remarks.begin(), converted.remarks.end(),
                             [&](const Remark& remark) { return added.starts_with(remark.path); });
        });
        EXPECT_TRUE(reported) << item.name << ": " << added;
        ++fields;
      });
    }
  }
  EXPECT_GE(fields, 40);
}

// A remark on a runtime is placed in it; without one in the input, at the reference to it.
TEST(Convert, RemarksOnARuntimeHaveItsLines) {
  const std::string job =
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n  runtimeRef:\n"
      "    name: xgboost-distributed\n";
  const auto installed = ConvertManifests(job);
  ASSERT_EQ(installed.size(), 1u);
  ASSERT_EQ(installed[0].remarks.size(), 1u);
  EXPECT_EQ(installed[0].remarks[0].path, "runtime.spec.mlPolicy.xgboost");
  EXPECT_EQ(installed[0].remarks[0].mark.line, 6);
  const auto given = ConvertManifests(
      job +
      "---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\n"
      "metadata: {name: xgboost-distributed}\nspec:\n  mlPolicy:\n    xgboost: {}\n  template: {spec: "
      "{replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: "
      "node}]}}}}}]}}\n");
  ASSERT_EQ(given.size(), 1u);
  ASSERT_EQ(given[0].remarks.size(), 1u);
  EXPECT_EQ(given[0].remarks[0].mark.line, 13);
}

// No manifest makes the converter stop: each value is removed, and replaced by a value of another type.
void Mutate(const Json& root, Json& node, Json& job, int& conversions) {
  const auto convert = [&] {
    ConvertManifests(job.dump());
    ++conversions;
  };
  std::vector<Json*> children;
  if (node.is_structured()) {
    for (Json& child : node) children.push_back(&child);
  }
  for (Json* child : children) {
    Json kept = *child;
    for (const Json& other :
         {Json(nullptr), Json(3), Json("text"), Json::array({Json::array()}), Json::object()}) {
      *child = other;
      convert();
    }
    *child = std::move(kept);
    Mutate(root, *child, job, conversions);
  }
}

TEST(Convert, SurvivesEveryWrongType) {
  int conversions = 0;
  for (const Case& item : Cases()) {
    if (item.name.starts_with("trainjob-")) {
      // Together with their runtimes.
      Json list = {{"kind", "List"}, {"items", Json::array()}};
      for (const api::Parsed& document : api::ParseYamlDocuments(item.text))
        list["items"].push_back(NodeToJson(document.root));
      Mutate(list, list, list, conversions);
      continue;
    }
    for (const api::Parsed& document : api::ParseYamlDocuments(item.text)) {
      Json job = NodeToJson(document.root);
      Mutate(job, job, job, conversions);
    }
  }
  EXPECT_GE(conversions, 2000);
}

TEST(Convert, ReportsBrokenText) {
  const auto results = ConvertManifests("apiVersion: kubeflow.org/v1\nkind: [\n");
  ASSERT_EQ(results.size(), 1u);
  ASSERT_EQ(results[0].remarks.size(), 1u);
  EXPECT_TRUE(results[0].remarks[0].refused);
  EXPECT_TRUE(results[0].job.is_null());
  EXPECT_TRUE(ConvertManifests("---\n---\n").empty());
}

}  // namespace
}  // namespace ringmaster::cli::convert
