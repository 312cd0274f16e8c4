// SPDX-License-Identifier: Apache-2.0

// The generated parts of docs/reference match the code; RINGMASTER_UPDATE=1 rewrites them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/exit_codes.h"
#include "base/file.h"
#include "cli/command.h"
#include "operator/core/decide/rules.h"
#include "operator/core/status.h"
#include "operator/flags.h"
#include "operator/serve/metrics.h"

namespace ringmaster {
namespace {

// Compares the text between the lines that mark the section.
void CheckSection(const std::string& path, const std::string& name, const std::string& generated) {
  const auto page = ReadFile(path);
  ASSERT_TRUE(page.ok()) << page.error().message;
  const size_t mark = page->find("<!-- BEGIN " + name + ":");
  ASSERT_NE(mark, std::string::npos) << path << " has no section " << name;
  const size_t begin = page->find('\n', mark) + 1;
  const size_t end = page->find("<!-- END " + name + " -->", begin);
  ASSERT_NE(end, std::string::npos) << path << ": section " << name << " has no end";
  if (std::getenv("RINGMASTER_UPDATE") != nullptr) {
    ASSERT_TRUE(WriteFileAtomic(path, page->substr(0, begin) + generated + page->substr(end)).ok());
    return;
  }
  EXPECT_EQ(page->substr(begin, end - begin), generated)
      << path << ": section " << name << " is out of date: run this test with RINGMASTER_UPDATE=1";
}

TEST(ReferenceDoc, Reasons) {
  std::string table = "| reason | on | means |\n|---|---|---|\n";
  for (const core::ReasonText& row : core::AllReasons())
    table += fmt::format("| `{}` | {} | {} |\n", core::ReasonName(row.reason), row.conditions, row.text);
  CheckSection("docs/reference/conditions.md", "reasons", table);
}

TEST(ReferenceDoc, Metrics) {
  std::string table = "| metric | kind | means |\n|---|---|---|\n";
  for (const auto& metric : serve::Metrics().Describe())
    table += fmt::format("| `{}` | {} | {} |\n", metric.name, metric.type, metric.help);
  CheckSection("docs/reference/metrics.md", "metrics", table);
}

TEST(ReferenceDoc, OperatorFlags) {
  for (const char* variable : {"POD_NAME", "POD_NAMESPACE", "POD_IP", "RINGMASTER_WORKER_IMAGE"})
    ::unsetenv(variable);
  std::string program = "ringmaster-operator", help = "--help";
  char* arguments[] = {program.data(), help.data(), nullptr};
  int exit_code = -1;
  testing::internal::CaptureStdout();
  const auto flags = operator_main::ParseFlags(2, arguments, exit_code);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(flags.has_value());
  EXPECT_EQ(exit_code, 0);
  CheckSection("docs/reference/operator-flags.md", "flags",
               "```\n" + text + (text.ends_with('\n') ? "```\n" : "\n```\n"));
}

// Whether the table of this chapter has a row for this exit code.
bool HasRow(const std::string& page, const std::string& chapter, int code) {
  const size_t begin = page.find("\n## " + chapter + "\n");
  if (begin == std::string::npos) return false;
  return page.substr(begin, page.find("\n## ", begin + 1) - begin).find(fmt::format("\n| {} | ", code)) !=
         std::string::npos;
}

TEST(ReferenceDoc, ExitCodes) {
  const auto page = ReadFile("docs/reference/exit-codes.md");
  ASSERT_TRUE(page.ok()) << page.error().message;
  for (const int code : {cli::kSucceeded, cli::kFailed, cli::kBadInput, cli::kInterrupted})
    EXPECT_TRUE(HasRow(*page, "ringmaster", code)) << code;
  for (const int code : {kExitBadInput, kExitStale}) EXPECT_TRUE(HasRow(*page, "Workers", code)) << code;
}

}  // namespace
}  // namespace ringmaster
