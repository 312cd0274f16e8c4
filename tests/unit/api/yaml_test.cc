// SPDX-License-Identifier: Apache-2.0

// What the YAML reader rejects before it checks any field, and the positions that it records.
#include "api/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/load.h"
#include "api/scalar.h"

namespace ringmaster::api {
namespace {

using ::testing::HasSubstr;

std::string All(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += problem.ToString() + "\n";
  return text;
}

TEST(Yaml, PlainScalarsWithoutAValueInJsonAreRejected) {
  for (const char* text : {"08", "-09", "0_8", ".inf", "-.Inf", ".nan", "1e999", "-1e999"}) {
    const Parsed parsed = ParseYaml(std::string("a: ") + text + "\n");
    ASSERT_EQ(parsed.problems.size(), 1u) << text;
    EXPECT_THAT(parsed.problems[0].ToString(), HasSubstr(std::string("1:4: a: plain ") + text)) << text;
    EXPECT_THAT(parsed.problems[0].message, HasSubstr("quote it")) << text;
    EXPECT_TRUE(ParseYaml(std::string("a: \"") + text + "\"").problems.empty()) << text;
    EXPECT_TRUE(ParseYaml(std::string("a: '") + text + "'").problems.empty()) << text;
  }
  EXPECT_THAT(ParseYaml("a: -0080").problems[0].message, HasSubstr("write -80"));
}

// The values are those that `kubectl label --local -o json` prints.
TEST(Yaml, PlainScalarsAreReadAsByKubectl) {
  const std::vector<std::pair<const char*, Json>> cases = {{"0400", 256},
                                                           {"0755", 493},
                                                           {"-012", -10},
                                                           {"+07", 7},
                                                           {"00", 0},
                                                           {"0o17", 15},
                                                           {"0x1F", 31},
                                                           {"0X1f", 31},
                                                           {"0b11", 3},
                                                           {"-0x10", -16},
                                                           {"1_000", 1000},
                                                           {"0x_ff", 255},
                                                           {"-_1", -1},
                                                           {"00.5", 0.5},
                                                           {"1_0.5", 10.5},
                                                           {"08.5", 8.5},
                                                           {"yes", true},
                                                           {"Yes", true},
                                                           {"YES", true},
                                                           {"on", true},
                                                           {"y", true},
                                                           {"N", false},
                                                           {"no", false},
                                                           {"Off", false},
                                                           {"1:30", "1:30"},
                                                           {"08:00", "08:00"},
                                                           {"190:20:30", "190:20:30"},
                                                           {"-1:30", "-1:30"},
                                                           {"0b12", "0b12"},
                                                           {"0o8", "0o8"},
                                                           {"0x1p3", "0x1p3"},
                                                           {".5_0", ".5_0"},
                                                           {"0xFFFFFFFFFFFFFFFF", 18446744073709551615u},
                                                           {"-9223372036854775808", INT64_MIN}};
  for (const auto& [text, value] : cases) {
    const Parsed parsed = ParseYaml(fmt::format("- {}\n", text));
    EXPECT_TRUE(parsed.problems.empty()) << text << "\n" << All(parsed.problems);
    EXPECT_EQ(NodeToJson(parsed.root), Json::array({value})) << text;
  }
}

TEST(Yaml, MergesAreExpanded) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n", {{"b", 1}, {"c", 3}}},
      {"a: &x {b: 1, c: 2}\nd:\n  <<: *x\n", {{"b", 1}, {"c", 2}}},
      {"a: &x {b: 1}\nz: &y {b: 2, c: 3}\nd: {<<: [*x, *y], e: 4}\n", {{"b", 1}, {"c", 3}, {"e", 4}}},
      {"a: &x {b: 1}\nz: &y {<<: *x, c: 3}\nd: {<<: *y}\n", {{"b", 1}, {"c", 3}}},
      {"a: &x {b: 1}\nd: {e: 4, <<: *x}\n", {{"b", 1}, {"e", 4}}},
      {"d: {<<: {b: 1}}\n", {{"b", 1}}},
  };
  for (const auto& [text, value] : cases) {
    const Parsed parsed = ParseYaml(text);
    EXPECT_TRUE(parsed.problems.empty()) << text << All(parsed.problems);
    EXPECT_EQ(NodeToJson(parsed.root)["d"], value) << text;
  }
  EXPECT_EQ(NodeToJson(ParseYaml("\"<<\": 1\n").root), (Json{{"<<", 1}}));  // in quotes it is a key
}

TEST(Yaml, IntegersAreKeysAsByKubectl) {
  EXPECT_EQ(NodeToJson(ParseYaml("1: a\n0x10: b\n").root), (Json{{"1", "a"}, {"16", "b"}}));
  EXPECT_THAT(All(ParseYaml("16: a\n0x10: b\n").problems), HasSubstr("16: duplicate key"));
}

TEST(Yaml, UnambiguousPlainScalarsAreRead) {
  const std::vector<std::pair<const char*, Json>> cases = {{"true", true},
                                                           {"False", false},
                                                           {"TRUE", true},
                                                           {"0", 0},
                                                           {"-12", -12},
                                                           {"+3", 3},
                                                           {"1.5", 1.5},
                                                           {"3e-4", 3e-4},
                                                           {".5", 0.5},
                                                           {"1.", 1.0},
                                                           {"0.5", 0.5},
                                                           {"yEs", "yEs"},
                                                           {"yes.", "yes."},
                                                           {"1.2.3", "1.2.3"},
                                                           {"10.0.0.1", "10.0.0.1"},
                                                           {"1:300", "1:300"},
                                                           {"0x", "0x"},
                                                           {"0xyz", "0xyz"},
                                                           {"1e", "1e"},
                                                           {".", "."},
                                                           {"-", Json::array({nullptr})},
                                                           {"2026-01-02", "2026-01-02"},
                                                           {"a:b", "a:b"},
                                                           {"_1", "_1"},
                                                           {"inf", "inf"},
                                                           {"nan", "nan"},
                                                           {"18446744073709551615", 18446744073709551615u},
                                                           {"-9223372036854775808", INT64_MIN},
                                                           {"~", nullptr},
                                                           {"null", nullptr},
                                                           {"", nullptr},
                                                           {"!!str 012", "012"},
                                                           {"Nully", "Nully"}};
  for (const auto& [text, value] : cases) {
    const Parsed parsed = ParseYaml(fmt::format("- {}\n", text));
    EXPECT_TRUE(parsed.problems.empty()) << text << "\n" << All(parsed.problems);
    EXPECT_EQ(NodeToJson(parsed.root), Json::array({value})) << text;
  }
}

TEST(Yaml, DocumentsHavePositionsInTheWholeText) {
  const auto documents = ParseYamlDocuments("a: 1\n---\n---\nb: 2\nb: 3\n---\n- c\n");
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].root.Find("a")->text, "1");
  EXPECT_EQ(All(documents[1].problems), "5:1: b: duplicate key; the first is at line 4\n");
  EXPECT_EQ(documents[2].root.mark.line, 7);
  const auto broken = ParseYamlDocuments("a: 1\n---\nb: [\n---\nc: 1\n");
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_TRUE(broken[0].whole);
  EXPECT_FALSE(broken[1].whole);
  EXPECT_TRUE(ParseYamlDocuments("# nothing\n").empty());
}

TEST(Yaml, ProblemsHaveAPosition) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: 1\na: 2\n", "2:1: a: duplicate key; the first is at line 1"},
      {"a:\n  b: [1, {c: 1, c: 2}]\n", "2:17: a.b[1].c: duplicate key; the first is at line 2"},
      {"\"a\": 1\n'a': 2\n", "2:1: a: duplicate key"},
      {"a: &x {b: 1}\nc:\n  b: 2\n  <<: *x\n",
       "4:3: c: readers of YAML disagree whether this merge replaces b, which is in line 3: write << in "
       "front"},
      {"a: &x [1]\nc:\n  <<: *x\n", "3:3: c: a merge (<<) takes an object, or a list of objects"},
      {"c: {<<: 3}\n", "1:5: c: a merge (<<) takes an object, or a list of objects"},
      {"c: {<<: }\n", "1:5: c: a merge (<<) takes an object, or a list of objects"},
      {"a: &x {b: 1}\nc: {<<: *x, <<: *x}\n", "2:13: c.<<: duplicate key"},
      {"a: &x {b: 1}\nc: {<<: *x, b: 1, b: 2}\n", "2:19: c.b: duplicate key"},
      {"a: &x [*x]\n", "1:8: a[0]: the alias contains itself"},
      {"a: &x {b: {c: *x}}\n", "1:15: a.b.c: the alias contains itself"},
      {"a: 1\n---\nb: 2\n", "several documents"},
      {"on: 1\n", "1:1: key: plain on is not text: quote it"},
      {"1.5: x\n", "1:1: key: plain 1.5 is not text: quote it"},
      {"true: x\n", "1:1: key: plain true is not text"},
      {"[a, b]: x\nc: y\n", "1:1: a key must be plain text"},
      {"? {a: b}\n: x\n", "1:3: a key must be plain text"},
      {"a: &k b\n*k : c\n", "a key must be plain text, not an alias"},
      {"? \n: x\n", "a key is missing"},
      {"a: !!binary aGk=\n", "1:4: a: tags such as tag:yaml.org,2002:binary are not supported"},
      {"a: !mine {b: 1}\n", "1:4: a: tags such as !mine are not supported"},
      {"a: b\n\tc: d\n", "2:1: not valid YAML: illegal tab"},
      {"a: [1, 2\n", "2:1: not valid YAML: end of sequence flow not found"},
      {"a: \"b", "not valid YAML: illegal EOF in scalar"},
      {"a: \"b\n", "1:4: not valid YAML: the quote is never closed"},
      {"é: \"\"\nb: 'it''s\n\n  c\n", "2:4: not valid YAML: the quote is never closed"},
      {"a: \"b\\\"\n", "1:4: not valid YAML: the quote is never closed"},
      {"a: *missing\n", "1:4: not valid YAML: the referenced anchor is not defined"},
      {"a: b: c\n", "1:5: not valid YAML: illegal map value"},
      {"", "there is no document"},
      {"# only a comment\n", "there is no document"},
      {"---\n...\n", "there is no document"},
      {"a: \xff\n", "1:4: not UTF-8 text"},
      {"a: é\nb: \xc3(\n", "2:4: not UTF-8 text"},
      {"a: \xc3", "1:4: not UTF-8 text"},
      {"a: \xf4\x90\x80\x80\n", "1:4: not UTF-8 text"},
      {"a: \xc0\x80\n", "1:4: not UTF-8 text"},
      {"a: \xed\xa0\x80\n", "1:4: not UTF-8 text"},
      {"a: \x01\n", "1:4: not UTF-8 text, or a control character"},
      {std::string("a: \0\n", 5), "1:4: not UTF-8 text, or a control character"},
  };
  for (const auto& [text, problem] : cases) {
    const Parsed parsed = ParseYaml(text);
    ASSERT_FALSE(parsed.problems.empty()) << text;
    EXPECT_THAT(All(parsed.problems), HasSubstr(problem)) << text;
  }
}

TEST(Yaml, KeysAfterARejectedKeyAreRead) {
  const Parsed parsed = ParseYaml("? [a]\n: {x: 1}\n? {b: 1}\n: z\nc: d\nc: e\nf: g\n");
  EXPECT_EQ(parsed.problems.size(), 3u) << All(parsed.problems);
  EXPECT_EQ(NodeToJson(parsed.root), (Json{{"c", "d"}, {"f", "g"}}));
}

TEST(Yaml, AliasesAreExpandedWithinBounds) {
  EXPECT_EQ(NodeToJson(ParseYaml("a: &x {b: &y [1, two]}\nc: *x\nd: *y\n").root),
            (Json{{"a", {{"b", {1, "two"}}}}, {"c", {{"b", {1, "two"}}}}, {"d", {1, "two"}}}));
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    laughs += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i,
                          i - 1);
  }
  EXPECT_THAT(All(ParseYaml(laughs).problems), HasSubstr("the expanded aliases are too large"));
  std::string tower = "a0: &a0 [x]\n";  // each alias one level deeper
  for (int i = 1; i < 80; ++i) tower += fmt::format("a{0}: &a{0} [*a{1}]\n", i, i - 1);
  EXPECT_THAT(All(ParseYaml(tower).problems), HasSubstr("nested deeper than 64"));
}

TEST(Yaml, DepthAndSizeAreBounded) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseYaml(nested(64)).problems.empty());
  EXPECT_THAT(All(ParseYaml(nested(65)).problems), HasSubstr("1:65: "));
  EXPECT_THAT(All(ParseYaml(nested(100000)).problems), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(All(ParseYaml(std::string(200000, '[')).problems), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(All(ParseYaml(std::string(500000, '-')).problems), HasSubstr(""));
  EXPECT_THAT(All(ParseYaml("a: " + std::string(1 << 20, 'x')).problems),
              HasSubstr("larger than 1048576 bytes"));
  std::string many = "a: [";
  for (int i = 0; i < 150000; ++i) many += "1,";
  EXPECT_THAT(All(ParseYaml(many + "]").problems), HasSubstr("too many values"));
}

TEST(Yaml, PositionsAreThoseOfTheFile) {
  const char* text =
      "# comment\n"
      "apiVersion: ringmaster.dev/v1alpha1\n"
      "kind: TrainingJob\n"
      "metadata: {name: a}\n"
      "spec:\n"
      "  framework: native\n"
      "  workers:\n"
      "    replicas: four\n"
      "    replica: 4\n"
      "  training:\n"
      "    model: {kind: gpt, heads: 3}\n"
      "    data:\n"
      "      kind: text\n"
      "    batch: {samplesPerStep: 20}\n"
      "  restart:\n"
      "    rules:\n"
      "    - when: {hang: true}\n"
      "      action: fail\n";
  EXPECT_EQ(
      All(LoadYaml(text).problems),
      "8:15: spec.workers.replicas: must be an integer (got \"four\")\n"
      "9:5: spec.workers.replica: unknown field; did you mean \"replicas\"?\n"
      "11:5: spec.training: exactly one of steps and epochs must be given (got neither)\n"
      "11:12: spec.training.model.width: must be a multiple of spec.training.model.heads (got 128 and 3)\n"
      "13:7: spec.training.data.path: required\n"
      "14:29: spec.training.batch.samplesPerStep: must be a multiple of spec.training.batch.microBatches "
      "(got 20 "
      "and 16)\n"
      "18:15: spec.restart.rules[0].action: must be one of Restart, Fail, Ignore (got \"fail\"); did you "
      "mean "
      "\"Fail\"?\n");
}

TEST(Yaml, ColumnsCountCharacters) {
  EXPECT_EQ(LoadYaml("{\"é🙂é\": 08}").problems.back().ToString().substr(0, 5), "1:9: ");
  EXPECT_EQ(LoadYaml("\xEF\xBB\xBF{\"é🙂é\": 08}").problems.back().column, 9);
  EXPECT_EQ(LoadYaml("a: b\n# é\nk: é é\xff").problems.at(0).column, 7);
}

TEST(Yaml, AcceptsWindowsLineEnds) {
  const Parsed parsed = ParseYaml("a: b\r\nc:\r\n  - d\r\n  - \"e\"\r\n  - 08\r\n");
  EXPECT_EQ(NodeToJson(parsed.root), (Json{{"a", "b"}, {"c", {"d", "e", "08"}}}));
  EXPECT_EQ(All(parsed.problems).substr(0, 10), "5:5: c[2]:");
}

TEST(Yaml, ReportsAtMostMaxProblems) {
  for (const char* line : {"  unknown{}: 08\n", "  unknown{}: 1\n"}) {
    std::string text = "spec:\n";
    for (int i = 0; i < 1000; ++i) text += fmt::format(fmt::runtime(line), i);
    EXPECT_EQ(LoadYaml(text).problems.size(), 100u);
  }
}

TEST(Problem, PrintsNoControlCharacters) {
  EXPECT_EQ(LoadYaml("{\"\\e[31m\\n\": 1}").problems.back().ToString(), "1:2: \\x1b[31m\\x0a: unknown field");
  EXPECT_EQ((Problem{"a.b", "is wrong", 3, 4}).ToString(), "3:4: a.b: is wrong");
  EXPECT_EQ((Problem{"a.b", "is wrong"}).ToString(), "a.b: is wrong");
  EXPECT_EQ((Problem{"", "is wrong", 3, 4}).ToString(), "3:4: is wrong");
}

}  // namespace
}  // namespace ringmaster::api
