// SPDX-License-Identifier: Apache-2.0

// Tables of docs/internals/operator.md are what the code says; RINGMASTER_UPDATE=1 rewrites them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/file.h"
#include "operator/core/status.h"
#include "operator/flags.h"
#include "operator/serve/metrics.h"

namespace ringmaster {
namespace {

constexpr const char* kPath = "docs/internals/operator.md";

// The text between the lines that mark the section.
void CheckSection(const std::string& name, const std::string& generated) {
  const auto page = ReadFile(kPath);
  ASSERT_TRUE(page.ok()) << page.error().message;
  const size_t mark = page->find("<!-- BEGIN " + name + ":");
  ASSERT_NE(mark, std::string::npos) << kPath << " has no section " << name;
  const size_t begin = page->find('\n', mark) + 1;
  const size_t end = page->find("<!-- END " + name + " -->", begin);
  ASSERT_NE(end, std::string::npos) << kPath << ": section " << name << " has no end";
  if (std::getenv("RINGMASTER_UPDATE") != nullptr) {
    ASSERT_TRUE(WriteFileAtomic(kPath, page->substr(0, begin) + generated + page->substr(end)).ok());
    return;
  }
  EXPECT_EQ(page->substr(begin, end - begin), generated)
      << kPath << ": section " << name << " is out of date: run this test with RINGMASTER_UPDATE=1";
}

TEST(OperatorDoc, Reasons) {
  std::string table = "| reason | on | means |\n|---|---|---|\n";
  for (const core::ReasonText& row : core::AllReasons())
    table += fmt::format("| `{}` | {} | {} |\n", core::ReasonName(row.reason), row.conditions, row.text);
  CheckSection("reasons", table);
}

TEST(OperatorDoc, Metrics) {
  std::string table = "| metric | kind | means |\n|---|---|---|\n";
  for (const auto& metric : serve::Metrics().Describe())
    table += fmt::format("| `{}` | {} | {} |\n", metric.name, metric.type, metric.help);
  CheckSection("metrics", table);
}

TEST(OperatorDoc, Flags) {
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
  CheckSection("flags", "```\n" + text + (text.ends_with('\n') ? "```\n" : "\n```\n"));
}

}  // namespace
}  // namespace ringmaster
