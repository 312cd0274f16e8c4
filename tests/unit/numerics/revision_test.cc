// SPDX-License-Identifier: Apache-2.0

// Members of a job compare numerics::kRevision. A changed kernel with an unchanged revision would let workers
// of two builds add different gradients in silence, so sources.txt records which sources a revision has.
#include "worker/compute/numerics/revision.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace ringmaster::numerics {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecord = "worker/compute/numerics/sources.txt";

// Everything that computes, and what selects the content and order of samples.
constexpr const char* kSources[] = {
    "base/portable_math.cc", "base/portable_math.h", "base/rng.h",
    "base/subnormals.h",     "worker/compute",       "worker/data",
};

// Returns the source without comments and white space: neither changes a bit of a result.
std::string Code(const std::string& text) {
  std::string code;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\0' && c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (quote == '\0' && std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    code += c;
    if (quote != '\0' && c == '\\' && i + 1 < text.size()) {
      code += text[++i];
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' &&
               (c == '"' ||
                (c == '\'' && (i == 0 || std::isxdigit(static_cast<unsigned char>(text[i - 1])) == 0)))) {
      quote = c;
    }
  }
  return code;
}

bool IsSource(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".cc" || extension == ".h" || extension == ".cu";
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const char* const source : kSources) {
    if (fs::is_regular_file(source)) files.emplace_back(source);
    if (!fs::is_directory(source)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source))
      if (entry.is_regular_file() && IsSource(entry.path())) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::string Line(const std::string& path, const std::string& text) {
  const std::string code = Code(text);
  return fmt::format("{} {}\n", HashHex(Hash64(std::as_bytes(std::span(code.data(), code.size())))), path);
}

// The revision, then a line for each source. Sources that include kRevision would change with it.
std::string Record() {
  std::string record = fmt::format("revision {}\n", kRevision);
  for (const std::string& file : Files())
    if (file != "worker/compute/numerics/revision.h") record += Line(file, ReadFile(file).value());
  return record;
}

TEST(Revision, SourcesThatComputeDoNotChangeWithoutIt) {
  const std::string now = Record();
  const auto file = ReadFile(kRecord);
  const std::string recorded = file.ok() ? *file : "";
  if (now == recorded) return;
  if (std::getenv("RINGMASTER_UPDATE") != nullptr) {
    std::ofstream(kRecord) << now;
    return;
  }
  const std::string revision = recorded.substr(0, recorded.find('\n'));
  std::string changed;
  for (size_t begin = 0; begin < now.size();) {
    const size_t end = now.find('\n', begin) + 1;
    const std::string line = now.substr(begin, end - begin);
    if (recorded.find(line) == std::string::npos) changed += "  " + line;
    begin = end;
  }
  FAIL() << "sources that determine bits have changed since \"" << revision << "\":\n"
         << changed << "If equal input gives other bits than before, raise kRevision in "
         << "worker/compute/numerics/revision.h. Then record the sources: RINGMASTER_UPDATE=1 "
         << "build/release/tests/unit/numerics/numerics_test --gtest_filter='Revision.*'";
}

TEST(Revision, OnlyCodeCounts) {
  EXPECT_EQ(Line("a.cc", "int a = 1;  // one\n"), Line("a.cc", "int a\n    = 1;\n"));
  EXPECT_NE(Line("a.cc", "float b = a * c;\n"), Line("a.cc", "float b = c * a;\n"));
  EXPECT_NE(Line("a.cc", "auto a = \"//x\";"), Line("a.cc", "auto a = \"//y\";"));
  EXPECT_NE(Line("a.cc", "int a = 1'000;  int b = 2;"), Line("a.cc", "int a = 1'000;  int b = 3;"));
}

TEST(Revision, AKernelOfEachDeviceIsASource) {
  const std::string record = Record();
  for (const char* const file :
       {"worker/compute/engine/kernels/gelu.cc", "worker/compute/cuda/kernels/gelu.cu",
        "worker/compute/optimizer/kernels.cc", "worker/compute/numerics/kernels.cc",
        "worker/data/permutation.cc", "base/subnormals.h"})
    EXPECT_NE(record.find(file), std::string::npos) << file;
}

}  // namespace
}  // namespace ringmaster::numerics
