// SPDX-License-Identifier: Apache-2.0

// Walks the repository and applies the house rules to every file. Runs in the root of the repository.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/tidy/rules.h"

namespace ringmaster::tidy {
namespace {
namespace fs = std::filesystem;

constexpr int kMaxLines = 600;
const char* const kCodeFolders[] = {"base",   "api", "rendezvous", "operator",
                                    "worker", "cli", "tests",      "bench"};
const char* const kOtherPlaces[] = {"scripts", "docs", "examples", "cmake", "README.md", "CONTRIBUTING.md"};

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Every regular file below `places`, with its path from the root.
void EachFile(std::initializer_list<const char*> extensions, auto& places,
              const std::function<void(const std::string&, const std::string&)>& visit) {
  const auto take = [&](const fs::path& path) {
    const std::string extension = path.extension().string();
    for (const char* wanted : extensions)
      if (extension == wanted) visit(path.generic_string(), Read(path));
  };
  for (const char* place : places) {
    if (fs::is_regular_file(place)) take(place);
    if (!fs::is_directory(place)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(place))
      if (entry.is_regular_file()) take(entry.path());
  }
}

void Report(const std::string& path, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    ADD_FAILURE() << path << ":" << finding.line << ": " << finding.what;
}

TEST(Tidy, RunsInTheRootOfTheRepository) { ASSERT_TRUE(fs::exists("base/result.h")); }

TEST(Tidy, ArrowsBetweenFolders) {
  int seen = 0;
  EachFile({".h", ".cc", ".cu"}, kCodeFolders, [&](const std::string& path, const std::string& text) {
    ++seen;
    Report(path, WrongArrows(path, text, HouseArrows()));
  });
  EXPECT_GT(seen, 50);
}

TEST(Tidy, Headers) {
  EachFile({".h"}, kCodeFolders,
           [](const std::string& path, const std::string& text) { Report(path, HeaderRules(text)); });
}

TEST(Tidy, NoLeftoverMarks) {
  const auto check = [](const std::string& path, const std::string& text) {
    Report(path, LeftoverMarks(text));
  };
  EachFile({".h", ".cc", ".cu", ".txt", ".py", ".md", ".yaml", ".cmake", ""}, kCodeFolders, check);
  EachFile({".h", ".cc", ".cu", ".txt", ".py", ".md", ".yaml", ".cmake", ""}, kOtherPlaces, check);
}

TEST(Tidy, FilesAreShort) {
  EachFile({".h", ".cc", ".cu", ".py"}, kCodeFolders,
           [](const std::string& path, const std::string& text) { Report(path, TooLong(text, kMaxLines)); });
}

TEST(Tidy, TestsDoNotSleep) {
  const char* const kTests[] = {"tests"};
  EachFile({".h", ".cc", ".py", ""}, kTests, [](const std::string& path, const std::string& text) {
    if (!path.starts_with("tests/tidy/")) Report(path, Sleeps(text));
  });
}

TEST(Tidy, MemoryHasOwners) {
  const char* const kProduct[] = {"base", "api", "rendezvous", "operator", "worker", "cli"};
  EachFile({".h", ".cc", ".cu"}, kProduct,
           [](const std::string& path, const std::string& text) { Report(path, RawMemory(text)); });
}

TEST(Tidy, FilesNameTheirLicence) {
  const char* const kMore[] = {"scripts", "cmake", "e2e", "examples",
                               "images",  "helm",  ".ci", "CMakeLists.txt"};
  int seen = 0;
  const auto check = [&](const std::string& path, const std::string& text) {
    const std::string extension = fs::path(path).extension().string();
    // Of files without an extension, scripts alone; of .txt, CMakeLists.txt alone.
    if (extension.empty() && !text.starts_with("#!")) return;
    if (extension == ".txt" && fs::path(path).filename() != "CMakeLists.txt") return;
    ++seen;
    Report(path, LicenceLine(text));
  };
  EachFile({".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh", ".txt", ""}, kCodeFolders, check);
  EachFile({".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh", ".txt", ""}, kMore, check);
  EXPECT_GT(seen, 500);
}

TEST(Tidy, LinksInDocumentsLeadSomewhere) {
  const char* const kDocuments[] = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs",
                                    "bench",     "examples",        "worker",       "operator"};
  EachFile({".md"}, kDocuments, [](const std::string& path, const std::string& text) {
    for (const std::string& link : RelativeLinks(text)) {
      const fs::path target = fs::path(path).parent_path() / link;
      EXPECT_TRUE(fs::exists(target)) << path << ": link to " << link << " leads nowhere";
    }
  });
}

}  // namespace
}  // namespace ringmaster::tidy
