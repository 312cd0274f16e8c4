// SPDX-License-Identifier: Apache-2.0

// Applies the rules of rules.h to every file of the repository. Runs in the root of the repository.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

#include "tests/tidy/rules.h"

namespace ringmaster::tidy {
namespace {
namespace fs = std::filesystem;

constexpr int kMaxLines = 600;
const char* const kCodeFolders[] = {"base",   "api", "rendezvous", "operator",
                                    "worker", "cli", "tests",      "bench"};
const char* const kProductFolders[] = {"base", "api", "rendezvous", "operator", "worker", "cli"};
const char* const kOtherPlaces[] = {"scripts", "docs", "examples", "cmake", "README.md", "CONTRIBUTING.md"};

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Calls `visit(path, text)` for every file in `places` with one of the extensions.
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
      // Packages of npm are not part of the repository.
      if (entry.is_regular_file() &&
          entry.path().generic_string().find("/node_modules/") == std::string::npos)
        take(entry.path());
  }
}

void Report(const std::string& path, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings)
    ADD_FAILURE() << path << ":" << finding.line << ": " << finding.what;
}

TEST(Tidy, RunsInTheRootOfTheRepository) { ASSERT_TRUE(fs::exists("base/result.h")); }

TEST(Tidy, IncludesFollowTheRules) {
  int seen = 0;
  EachFile({".h", ".cc", ".cu"}, kCodeFolders, [&](const std::string& path, const std::string& text) {
    ++seen;
    Report(path, ForbiddenIncludes(path, text, AllowedIncludes()));
  });
  EXPECT_GT(seen, 50);
}

TEST(Tidy, EveryFolderOfTheProductHasIncludeRules) {
  EachFile({".h", ".cc", ".cu"}, kProductFolders, [](const std::string& path, const std::string&) {
    EXPECT_FALSE(FolderOf(path, AllowedIncludes()).empty()) << path << ": add its folder to AllowedIncludes";
  });
}

TEST(Tidy, Headers) {
  EachFile({".h"}, kCodeFolders,
           [](const std::string& path, const std::string& text) { Report(path, HeaderRules(text)); });
}

TEST(Tidy, NoTodoMarks) {
  const auto check = [](const std::string& path, const std::string& text) { Report(path, TodoMarks(text)); };
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
  EachFile({".h", ".cc", ".cu"}, kProductFolders,
           [](const std::string& path, const std::string& text) { Report(path, RawMemory(text)); });
}

TEST(Tidy, TheCommandLineWritesThroughOneFunction) {
  const char* const kCli[] = {"cli"};
  // These move the cursor themselves.
  const std::set<std::string> allowed = {"cli/write_text.cc", "cli/plot/live_screen.cc",
                                         "cli/plot/progress_bar.cc"};
  EachFile({".h", ".cc"}, kCli, [&](const std::string& path, const std::string& text) {
    if (!allowed.contains(path)) Report(path, UnfilteredOutput(text));
  });
}

TEST(Tidy, WhereTheSanitizerDoesNotCheckCastsThereAreNone) {
  const std::vector<std::string> patterns = UncheckedFolders(Read("cmake/Compiler.cmake"));
  ASSERT_EQ(patterns.size(), 2U);
  int seen = 0;
  EachFile({".h", ".cc"}, kCodeFolders, [&](const std::string& path, const std::string& text) {
    for (const std::string& pattern : patterns) {
      if (!std::regex_search(path, std::regex(pattern))) continue;
      ++seen;
      Report(path, UncheckedCasts(text));
    }
  });
  EXPECT_GT(seen, 300);
}

TEST(Tidy, FilesNameTheirLicence) {
  const char* const kMore[] = {"scripts", "cmake", "e2e", "examples",
                               "images",  "helm",  ".ci", "CMakeLists.txt"};
  int seen = 0;
  const auto check = [&](const std::string& path, const std::string& text) {
    const std::string extension = fs::path(path).extension().string();
    // Check only scripts among the files without an extension, and only CMakeLists.txt among the .txt files.
    if (extension.empty() && !text.starts_with("#!")) return;
    if (extension == ".txt" && fs::path(path).filename() != "CMakeLists.txt") return;
    ++seen;
    Report(path, LicenceLine(text));
  };
  EachFile({".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh", ".txt", ""}, kCodeFolders, check);
  EachFile({".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh", ".txt", ""}, kMore, check);
  EXPECT_GT(seen, 500);
}

TEST(Tidy, FilesOfTestsRunThem) {
  const char* const kTests[] = {"tests", "e2e", "python"};
  int seen = 0;
  EachFile({".py"}, kTests, [&](const std::string& path, const std::string& text) {
    if (!path.ends_with("_test.py")) return;
    ++seen;
    Report(path, NeverRuns(text));
  });
  EXPECT_GT(seen, 50);
}

TEST(Tidy, LinksInDocumentsHaveATarget) {
  const char* const kDocuments[] = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs",
                                    "bench",     "examples",        "worker",       "operator"};
  EachFile({".md"}, kDocuments, [](const std::string& path, const std::string& text) {
    for (const std::string& link : RelativeLinks(text)) {
      const fs::path target = fs::path(path).parent_path() / link;
      EXPECT_TRUE(fs::exists(target)) << path << ": link to " << link << " has no target";
    }
  });
}

}  // namespace
}  // namespace ringmaster::tidy
