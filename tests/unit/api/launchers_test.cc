// SPDX-License-Identifier: Apache-2.0

// Launchers in commands: each row of docs/reference/launchers.md, and how words and shells are read.
#include "api/launchers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/load.h"
#include "base/file.h"

namespace ringmaster::api {
namespace {

using Words = std::vector<std::string>;

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" `"), end = text.find_last_not_of(" `");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// Returns the rows of the table with these columns. No cell contains '|'.
std::vector<Words> RowsOf(const std::string& page, const std::string& header) {
  std::vector<Words> rows;
  size_t at = page.find(header);
  if (at == std::string::npos) return rows;
  at = page.find('\n', page.find('\n', at) + 1) + 1;  // behind the line of dashes
  while (page[at] == '|') {
    const size_t end = page.find('\n', at);
    Words cells;
    for (size_t begin = at + 1; begin < end;) {
      const size_t bar = page.find('|', begin);
      cells.push_back(Trimmed(page.substr(begin, bar - begin)));
      begin = bar + 1;
    }
    rows.push_back(cells);
    at = end + 1;
  }
  return rows;
}

TEST(Launchers, EveryRowOfTheReferenceIsTrue) {
  const auto page = ReadFile("docs/reference/launchers.md");
  ASSERT_TRUE(page.ok());
  const std::vector<Words> rows = RowsOf(*page, "| command | framework | workers | result |");
  ASSERT_GE(rows.size(), 40U);
  for (const Words& row : rows) {
    ASSERT_EQ(row.size(), 4U);
    SCOPED_TRACE(row[0] + " " + row[1] + " " + row[2]);
    const Loaded loaded =
        LoadYaml(fmt::format("apiVersion: ringmaster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {{name: "
                             "job}}\nspec:\n  framework: {}\n{}"
                             "  workers:\n    replicas: {}\n    template: {{spec: {{containers: [{{name: "
                             "worker, image: none, command: {}}}]}}}}\n",
                             row[1], row[1] == "mpi" ? "  launch: {mpi: openmpi}\n" : "", row[2], row[0]));
    if (row[3].starts_with("runs")) {
      for (const Problem& problem : loaded.problems) ADD_FAILURE() << problem.ToString();
    } else {
      ASSERT_EQ(loaded.problems.size(), 1U);
      EXPECT_EQ(loaded.problems[0].path, "spec.workers.template.spec.containers");
      EXPECT_TRUE(loaded.problems[0].message.starts_with(row[3])) << loaded.problems[0].message;
    }
  }
}

TEST(Launchers, TheTemplateOfARoleIsReadToo) {
  const std::string job =
      "apiVersion: ringmaster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: job}\nspec:\n  framework: "
      "pytorch\n"
      "  workers:\n    replicas: 2\n    template: {spec: {containers: [{name: worker, command: [python, "
      "a.py]}]}}\n"
      "  roles: [{name: master, template: {spec: {containers: [{name: worker, command: [deepspeed, "
      "a.py]}]}}}]\n";
  const Loaded loaded = LoadYaml(job);
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_EQ(loaded.problems[0].path, "spec.roles[0].template.spec.containers");
}

Words NamesIn(const Words& words) {
  Words names;
  for (const LauncherCall& call : FindLaunchersIn(words)) names.push_back(call.name);
  return names;
}

TEST(Launchers, AreFoundWhereAShellRunsThem) {
  EXPECT_EQ(NamesIn({"bash", "-euxo", "pipefail", "-c", "A=1 torchrun x"}), Words{"torchrun"});
  EXPECT_EQ(NamesIn({"sh", "-c", "if true; then\n  mpirun a\nelse srun b; fi # horovodrun"}),
            (Words{"mpirun", "srun"}));
  EXPECT_EQ(NamesIn({"sh", "-c", "echo 'torchrun x'; echo \"; mpirun\""}), Words{});
  EXPECT_EQ(NamesIn({"sh", "-c", "bash -c \"exec deepspeed x\""}), Words{"deepspeed"});
  EXPECT_EQ(NamesIn({"sh", "-c", "x=$(srun hostname) && python y"}), Words{"srun"});
  EXPECT_EQ(NamesIn({"sh", "-c", "tor\\\nchrun x"}), Words{"torchrun"});
  EXPECT_EQ(NamesIn({"bash", "script.sh", "torchrun"}), Words{});
  EXPECT_EQ(NamesIn({"bash", "-c"}), Words{});
  EXPECT_EQ(NamesIn({"nice", "-n", "5", "/usr/bin/torchrun"}), Words{"/usr/bin/torchrun"});
}

TEST(Launchers, OptionsEndAtTheScript) {
  const std::vector<LauncherCall> calls =
      FindLaunchersIn({"torchrun", "--nnodes", "2", "--rdzv-id=7", "--standalone", "a.py", "--nnodes=3"});
  ASSERT_EQ(calls.size(), 1U);
  std::string text;
  for (const LauncherOption& option : OptionsOf(calls[0])) text += option.name + "=" + option.value + " ";
  EXPECT_EQ(text, "nnodes=2 rdzv_id=7 standalone= ");
}

}  // namespace
}  // namespace ringmaster::api
