// SPDX-License-Identifier: Apache-2.0

// The table of manifests: good/*.yaml load, bad/*.yaml give exactly the problems of their header lines
// (`# problem: path: part of the message`). e2e/crd applies the same files to an API server with the CRD.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "api/load.h"
#include "base/file.h"

namespace ringmaster::api {
namespace {

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string Text(const std::string& file) {
  auto text = ReadFile(file);
  EXPECT_TRUE(text.ok()) << file;
  return text.ok() ? *text : std::string();
}

std::string Listed(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += problem.ToString() + "\n";
  return text;
}

// Returns {path, part of the message} of each header line, sorted.
std::vector<std::pair<std::string, std::string>> Expected(const std::string& text) {
  constexpr std::string_view kHead = "# problem: ";
  std::vector<std::pair<std::string, std::string>> expected;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with(kHead);) {
    line.erase(0, kHead.size());
    const size_t colon = line.find(": ");
    expected.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  std::sort(expected.begin(), expected.end());
  return expected;
}

TEST(Manifests, GoodOnesLoadAndRoundTrip) {
  const auto files = FilesIn("tests/unit/api/manifests/good");
  EXPECT_GE(files.size(), 60u);
  for (const std::string& file : files) {
    const Loaded loaded = LoadYaml(Text(file));
    EXPECT_TRUE(loaded.problems.empty()) << file << "\n" << Listed(loaded.problems);
    const Loaded again = FromJson(ToJson(loaded.job));
    EXPECT_TRUE(again.problems.empty()) << file << "\n" << Listed(again.problems);
    EXPECT_TRUE(again.job == loaded.job) << file << "\n" << DumpJson(ToJson(loaded.job));
  }
}

TEST(Manifests, BadOnesGiveTheProblemsOfTheirHeader) {
  const auto files = FilesIn("tests/unit/api/manifests/bad");
  EXPECT_GE(files.size(), 150u);
  for (const std::string& file : files) {
    const std::string text = Text(file);
    const auto expected = Expected(text);
    EXPECT_FALSE(expected.empty()) << file;
    auto problems = LoadYaml(text).problems;
    std::sort(problems.begin(), problems.end(),
              [](const Problem& a, const Problem& b) { return a.path < b.path; });
    ASSERT_EQ(problems.size(), expected.size()) << file << "\n" << Listed(problems);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(problems[i].path, expected[i].first) << file;
      EXPECT_NE(problems[i].message.find(expected[i].second), std::string::npos) << file << "\n"
                                                                                 << Listed(problems);
      EXPECT_GT(problems[i].line, 0) << file;
      EXPECT_GT(problems[i].column, 0) << file;
    }
  }
}

TEST(Manifests, JsonIsYaml) {
  for (const std::string& file : FilesIn("tests/unit/api/manifests/good")) {
    const Loaded loaded = LoadYaml(Text(file));
    for (const int indent : {-1, 2}) {
      const Loaded as_json = LoadYaml(ToJson(loaded.job).dump(indent));
      EXPECT_TRUE(as_json.problems.empty()) << file << "\n" << Listed(as_json.problems);
      EXPECT_TRUE(as_json.job == loaded.job) << file;
    }
  }
}

TEST(Manifests, ExamplesAreValid) {
  size_t jobs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("examples")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string file = entry.path().string();
    const Loaded loaded = LoadYaml(Text(file));
    EXPECT_TRUE(loaded.problems.empty()) << file << "\n" << Listed(loaded.problems);
    ++jobs;
    if (entry.path().parent_path() != "examples") continue;  // a program with its job
    EXPECT_EQ(file, "examples/" + loaded.job.metadata.name + ".yaml");
  }
  EXPECT_GE(jobs, 6u);
}

TEST(Manifests, OctalNumbersAreReadAsByKubectl) {
  const TrainingJob job = LoadYaml(Text("tests/unit/api/manifests/good/yaml-octal.yaml")).job;
  EXPECT_EQ(job.spec.workers.slots, "4");
  EXPECT_EQ(job.spec.workers.template_["spec"]["volumes"][0]["secret"]["defaultMode"], 256);
  const TrainingJob merged = LoadYaml(Text("tests/unit/api/manifests/good/yaml-merge-key.yaml")).job;
  EXPECT_EQ(merged.spec.restart.rules.at(1).on.exitCodes, (std::vector<int32_t>{7}));
  EXPECT_TRUE(LoadYaml(Text("tests/unit/api/manifests/good/yaml-yes.yaml")).job.spec.suspend);
}

TEST(Manifests, DefaultsAreThoseOfTheStructs) {
  const Loaded loaded = LoadYaml(Text("tests/unit/api/manifests/good/minimal-native.yaml"));
  TrainingJob expected;
  expected.metadata.name = "gpt";
  expected.spec.framework = "native";
  expected.spec.workers.replicas = 4;
  expected.spec.training.emplace();
  expected.spec.training->model.kind = "gpt";
  expected.spec.training->data.kind = "text";
  expected.spec.training->data.path = "/data/text";
  expected.spec.training->steps = 100;
  EXPECT_TRUE(loaded.job == expected) << DumpJson(ToJson(loaded.job));
  EXPECT_EQ(loaded.job.spec.workers.EffectiveMin(), 4);
  EXPECT_EQ(loaded.job.spec.workers.EffectiveMax(), 4);
}

TEST(Validate, ChecksAJobBuiltInCode) {
  Loaded loaded = LoadYaml(Text("tests/unit/api/manifests/good/elastic.yaml"));
  ASSERT_TRUE(Validate(loaded.job).empty());
  loaded.job.spec.workers.replicas = 9;
  loaded.job.spec.training->optimizer.beta1 = "2";
  const auto problems = Validate(loaded.job);
  ASSERT_EQ(problems.size(), 2u) << Listed(problems);
  EXPECT_EQ(problems[0].ToString(), "spec.training.optimizer.beta1: must be below 1 (got \"2\")");
  EXPECT_EQ(problems[1].ToString(), "spec.workers.max: must be at least spec.workers.replicas (got 8 < 9)");
}

// An API server sees the first word of the command only.
TEST(Validate, FindsTorchrunAsAModuleOfPython) {
  TrainingJob job = LoadYaml(Text("tests/unit/api/manifests/good/slots-deepspeed.yaml")).job;
  Json& container = job.spec.workers.template_["spec"]["containers"][0];
  const auto run = [&](const std::vector<std::string>& command, const std::vector<std::string>& args) {
    container["command"] = command;
    container["args"] = args;
    return Validate(job);
  };
  for (const auto& problems : {run({"python", "-m", "torch.distributed.run", "train.py"}, {}),
                               run({"python3", "-u", "-m", "torch.distributed.launch", "train.py"}, {}),
                               run({"python"}, {"-m", "torch.distributed.run", "train.py"})}) {
    ASSERT_EQ(problems.size(), 1u) << Listed(problems);
    EXPECT_EQ(problems[0].path, "spec.workers.slots");
    EXPECT_NE(problems[0].message.find("must be 1 when the command is torchrun (got 8)"), std::string::npos);
  }
  EXPECT_TRUE(run({"python", "-m", "train", "torch.distributed.run"}, {}).empty());
  job.spec.workers.slots = "1";
  EXPECT_TRUE(run({"python", "-m", "torch.distributed.run", "train.py"}, {}).empty());
}

TEST(FromJson, RejectsTooDeepValuesAndNonObjects) {
  Json deep = Json::object();
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  const Json job = {{"spec", {{"workers", {{"template", {{"extra", deep}}}}}}}};
  EXPECT_EQ(FromJson(job).problems.at(0).message, "spec.workers.template.extra[0]: nested deeper than 64");
  EXPECT_EQ(FromJson(Json()).problems.at(0).message, "must be an object (got null)");
  EXPECT_EQ(FromJson(Json(3)).problems.at(0).message, "must be an object (got 3)");
}

TEST(FromJson, ProblemsHaveNoLine) {
  for (const Problem& problem : FromJson(Json::object()).problems) {
    EXPECT_EQ(problem.line, 0);
    EXPECT_EQ(problem.column, 0);
  }
}

}  // namespace
}  // namespace ringmaster::api
