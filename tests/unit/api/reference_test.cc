// SPDX-License-Identifier: Apache-2.0

// docs/reference/api*.md and the CRD match the field tables (RINGMASTER_UPDATE=1 rewrites the files), and the
// tables are complete.
#include <gtest/gtest.h>

#include <cstdlib>

#include "api/crd.h"
#include "api/load.h"
#include "api/schema.h"
#include "api/yaml.h"
#include "base/file.h"

namespace ringmaster::api {
namespace {

void CheckFile(const std::string& path, const std::string& generated) {
  if (std::getenv("RINGMASTER_UPDATE") != nullptr) {
    ASSERT_TRUE(WriteFileAtomic(path, generated).ok());
  }
  const auto text = ReadFile(path);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_TRUE(*text == generated) << path << " is out of date: run this test with RINGMASTER_UPDATE=1";
}

TEST(Reference, FilesAreUpToDate) {
  for (const ReferencePage& page : ReferencePages()) CheckFile("docs/reference/" + page.file, page.text);
}

TEST(Crd, FileIsUpToDate) { CheckFile("crds/ringmaster.dev_trainingjobs.yaml", CrdYaml()); }

TEST(Crd, YamlEqualsTheJson) {
  const Parsed parsed = ParseYaml(CrdYaml());
  for (const Problem& problem : parsed.problems) ADD_FAILURE() << problem.ToString();
  EXPECT_TRUE(NodeToJson(parsed.root) == CustomResourceDefinition());
}

TEST(Reference, TheExampleIsAValidJob) {
  const std::string text = ReferencePages().front().text;
  const size_t begin = text.find("```yaml\n") + 8, end = text.find("```", begin);
  const Loaded loaded = LoadYaml(text.substr(begin, end - begin));
  for (const Problem& problem : loaded.problems) ADD_FAILURE() << problem.ToString();
  EXPECT_EQ(loaded.job.metadata.name, "my-first-job");
}

// The CRD needs a bound for every list, map, string and integer, and the reference needs a description of
// every field.
void Check(const Schema& schema, const std::string& path) {
  const Rules& rules = schema.rules;
  switch (schema.type) {
    case Type::kString:
    case Type::kIntOrString:
      EXPECT_GT(rules.max_length, 0) << path;
      break;
    case Type::kInteger:
      EXPECT_GT(rules.min, std::numeric_limits<int64_t>::min()) << path;
      if (schema.bits == 32) {
        EXPECT_GE(rules.min, INT32_MIN) << path;
        EXPECT_LE(rules.max, INT32_MAX) << path;
      }
      break;
    case Type::kList:
    case Type::kMap:
      EXPECT_GT(rules.max_items, 0) << path;
      ASSERT_EQ(schema.item.size(), 1u) << path;
      Check(schema.item.front(), path + "[]");
      break;
    case Type::kObject:
      EXPECT_FALSE(schema.fields.empty()) << path;
      break;
    case Type::kBool:
    case Type::kAnyObject:
      break;
  }
  for (const Schema& field : schema.fields) {
    EXPECT_GT(field.help.size(), 3u) << path << "." << field.name;
    EXPECT_EQ(field.help.find('|'), std::string::npos) << path << "." << field.name;  // it goes into a table
    Check(field, path + "." + field.name);
  }
}

TEST(Tables, EveryFieldIsDescribedAndBounded) { Check(JobSchema(), ""); }

// Defaults pass the checks of their field. The remaining problems are required fields without a default.
TEST(Tables, DefaultsAreValid) {
  TrainingJob job;
  job.spec.training.emplace();
  std::string all;
  for (const Problem& problem : Validate(job)) all += problem.ToString() + "\n";
  EXPECT_EQ(all,
            "spec.framework: must not be empty\n"
            "spec.training.data.kind: must not be empty\n"
            "spec.training.data.path: must not be empty\n"
            "spec.training.model.kind: must not be empty\n"
            "metadata.name: required\n"
            "spec.training: exactly one of steps and epochs must be given (got neither)\n");
}

}  // namespace
}  // namespace ringmaster::api
