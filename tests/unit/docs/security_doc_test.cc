// SPDX-License-Identifier: Apache-2.0

// docs/operate/security.md has a row with a reason for every right in config/rbac.yaml, and no other row.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "api/node.h"
#include "api/yaml.h"
#include "base/file.h"

namespace ringmaster {
namespace {

// "ClusterRole pods create", "Role secrets.v1 [ringmaster-rendezvous] get": comparable, and readable.
using Rights = std::set<std::string>;

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string> Split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(Trim(part));
  return parts;
}

void Add(const std::string& role, const std::vector<std::string>& groups,
         const std::vector<std::string>& resources, const std::vector<std::string>& names,
         const std::vector<std::string>& verbs, Rights& rights) {
  for (const auto& group : groups)
    for (const auto& resource : resources)
      for (const auto& name : names)
        for (const auto& verb : verbs)
          rights.insert(fmt::format("{}: {} {}{}{}", role, verb, resource, group.empty() ? "" : "." + group,
                                    name.empty() ? "" : " named " + name));
}

std::vector<std::string> Strings(const Json& rule, const char* key) {
  return rule.contains(key) ? rule.at(key).get<std::vector<std::string>>() : std::vector<std::string>{""};
}

Rights Granted() {
  Rights rights;
  const auto text = ReadFile("config/rbac.yaml");
  EXPECT_TRUE(text.ok());
  if (!text.ok()) return rights;
  std::string rest = *text + "\n---\n";
  for (size_t end = 0; (end = rest.find("\n---\n")) != std::string::npos; rest.erase(0, end + 5)) {
    const api::Parsed parsed = api::ParseYaml(rest.substr(0, end + 1));
    EXPECT_TRUE(parsed.problems.empty());
    const Json object = api::NodeToJson(parsed.root);
    if (!object.is_object() || !object.contains("rules")) continue;
    for (const Json& rule : object.at("rules"))
      Add(object.at("kind").get<std::string>(), Strings(rule, "apiGroups"), Strings(rule, "resources"),
          Strings(rule, "resourceNames"), Strings(rule, "verbs"), rights);
  }
  return rights;
}

// | role | group | resources | names | verbs | why |
Rights Explained() {
  Rights rights;
  const auto text = ReadFile("docs/operate/security.md");
  EXPECT_TRUE(text.ok());
  if (!text.ok()) return rights;
  for (const std::string& line : Split(*text, '\n')) {
    const std::vector<std::string> cells = Split(line, '|');
    if (cells.size() != 7 || (cells[1] != "ClusterRole" && cells[1] != "Role")) continue;
    EXPECT_GT(cells[6].size(), 10u) << "no reason: " << line;
    const std::vector<std::string> groups =
        cells[2] == "core" ? std::vector<std::string>{""} : Split(cells[2], ',');
    const std::vector<std::string> names =
        cells[4].empty() ? std::vector<std::string>{""} : Split(cells[4], ',');
    Add(cells[1], groups, Split(cells[3], ','), names, Split(cells[5], ','), rights);
  }
  return rights;
}

// Returns the words of a text between two marks.
std::set<std::string> WordsBetween(const std::string& path, const std::string& begin, const std::string& end,
                                   char quote) {
  std::set<std::string> words;
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << path;
  const size_t from = text.ok() ? text->find(begin) : std::string::npos;
  if (from == std::string::npos) return words;
  const size_t to = text->find(end, from + begin.size());
  bool inside = false;
  for (const std::string& part :
       Split(text->substr(from + begin.size(), to - from - begin.size()) + " ", quote)) {
    if (inside) words.insert(part);
    inside = !inside;
  }
  return words;
}

// With watchNamespaces the chart leaves the rules about these resources in the ClusterRole.
TEST(SecurityDoc, RightsThatStayClusterWideAreListed) {
  const std::set<std::string> first =
      WordsBetween("helm/ringmaster/templates/rbac.yaml", "$clusterWide := list ", "}}", '"');
  ASSERT_GT(first.size(), 5u);
  std::set<std::string> wide;
  const auto text = ReadFile("config/rbac.yaml");
  ASSERT_TRUE(text.ok());
  std::string rest = *text + "\n---\n";
  for (size_t end = 0; (end = rest.find("\n---\n")) != std::string::npos; rest.erase(0, end + 5)) {
    const Json object = api::NodeToJson(api::ParseYaml(rest.substr(0, end + 1)).root);
    if (!object.is_object() || !object.contains("rules") || object.at("kind") != "ClusterRole") continue;
    for (const Json& rule : object.at("rules")) {
      const std::vector<std::string> resources = Strings(rule, "resources");
      if (first.contains(resources.front())) wide.insert(resources.begin(), resources.end());
    }
  }
  EXPECT_EQ(WordsBetween("docs/operate/security.md", "stay cluster-wide:", ".\n", '`'), wide);
}

TEST(SecurityDoc, EveryRightHasItsReason) {
  const Rights granted = Granted(), explained = Explained();
  EXPECT_GT(granted.size(), 20u);
  for (const std::string& right : granted)
    EXPECT_TRUE(explained.contains(right)) << "docs/operate/security.md does not say why: " << right;
  for (const std::string& right : explained)
    EXPECT_TRUE(granted.contains(right)) << "config/rbac.yaml does not grant: " << right;
}

}  // namespace
}  // namespace ringmaster
