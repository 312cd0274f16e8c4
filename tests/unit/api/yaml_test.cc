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

TEST(Yaml, AmbiguousPlainScalarsAreRejected) {
  for (const char* text :
       {"yes",   "Yes",  "YES",       "no",    "NO",   "on",    "On",   "off",   "OFF",   "y",    "Y",
        "n",     "N",    "012",       "-012",  "+07",  "00",    "00.5", "08",    "0x1F",  "0o17", "0b11",
        "1_000", "1:30", "190:20:30", "-1:30", ".inf", "-.Inf", ".nan", "1e999", "-1e999"}) {
    const Parsed parsed = ParseYaml(std::string("a: ") + text + "\n");
    ASSERT_EQ(parsed.problems.size(), 1u) << text;
    EXPECT_THAT(parsed.problems[0].ToString(), HasSubstr(std::string("1:4: a: plain ") + text)) << text;
    EXPECT_THAT(parsed.problems[0].message, HasSubstr("quote it")) << text;
    EXPECT_TRUE(ParseYaml(std::string("a: \"") + text + "\"").problems.empty()) << text;
    EXPECT_TRUE(ParseYaml(std::string("a: '") + text + "'").problems.empty()) << text;
  }
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
      {"a: &x {b: 1}\nc:\n  <<: *x\n", "3:3: c: merge keys (<<) are not supported"},
      {"a: &x [*x]\n", "1:8: a[0]: the alias contains itself"},
      {"a: &x {b: {c: *x}}\n", "1:15: a.b.c: the alias contains itself"},
      {"a: 1\n---\nb: 2\n", "several documents"},
      {"on: 1\n", "1:1: key: plain on is a boolean"},
      {"1: x\n", "1:1: key: plain 1 is not text: quote it"},
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
  EXPECT_EQ(LoadYaml("{\"é🙂é\": yes}").problems.back().ToString().substr(0, 5), "1:9: ");
  EXPECT_EQ(LoadYaml("\xEF\xBB\xBF{\"é🙂é\": yes}").problems.back().column, 9);
  EXPECT_EQ(LoadYaml("a: b\n# é\nk: é é\xff").problems.at(0).column, 7);
}

TEST(Yaml, AcceptsWindowsLineEnds) {
  const Parsed parsed = ParseYaml("a: b\r\nc:\r\n  - d\r\n  - \"e\"\r\n  - yes\r\n");
  EXPECT_EQ(NodeToJson(parsed.root), (Json{{"a", "b"}, {"c", {"d", "e", "yes"}}}));
  EXPECT_EQ(All(parsed.problems).substr(0, 10), "5:5: c[2]:");
}

TEST(Yaml, ReportsAtMostMaxProblems) {
  for (const char* line : {"  unknown{}: yes\n", "  unknown{}: 1\n"}) {
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
