// SPDX-License-Identifier: Apache-2.0

// The objects rendered from each manifest of jobs/, compared with reviewed files. RINGMASTER_UPDATE=1 writes
// the files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "api/yaml_text.h"
#include "base/file.h"
#include "operator/wiring/wiring.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kGoldenFolder = "tests/unit/wiring/golden";
constexpr const char* kUid = "6a1f2c58-0000-4000-8000-000000000001";

// Returns the supporting objects and the last pod.
std::string Everything(const Case& item) {
  std::string text;
  for (const Json& object : ObjectsOf(item.job, kUid, item.context)) text += "---\n" + api::YamlText(object);
  const int32_t last = RanksOf(item.job, item.job.spec.workers.replicas).back();
  return text + "---\n" + api::YamlText(PodOf(item.job, kUid, last, item.context));
}

TEST(Golden, EveryManifestMatchesItsFile) {
  const std::vector<Case> cases = AllCases();
  EXPECT_GE(cases.size(), 15u);
  for (const Case& item : cases) {
    const std::string path = fmt::format("{}/{}.yaml", kGoldenFolder, item.name);
    const std::string text = Everything(item);
    if (std::getenv("RINGMASTER_UPDATE") != nullptr) {
      ASSERT_TRUE(WriteFileAtomic(path, text).ok());
      continue;
    }
    const auto wanted = ReadFile(path);
    ASSERT_TRUE(wanted.ok()) << wanted.error().message << "; RINGMASTER_UPDATE=1 writes it";
    EXPECT_EQ(*wanted, text) << path << ": review the change; RINGMASTER_UPDATE=1 writes it";
  }
}

TEST(Golden, EveryFileHasAManifest) {
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenFolder)) {
    const std::string manifest = fmt::format("tests/unit/wiring/jobs/{}", entry.path().filename().string());
    EXPECT_TRUE(std::filesystem::exists(manifest)) << entry.path();
  }
}

TEST(Golden, RenderingIsDeterministic) {
  for (const Case& item : AllCases()) EXPECT_EQ(Everything(item), Everything(item));
}

}  // namespace
}  // namespace ringmaster::wiring
