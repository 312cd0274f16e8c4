// SPDX-License-Identifier: Apache-2.0

// merge_cases.json: e2e/wiring compares the same table with the results of kubectl.
#include "operator/wiring/merge.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace ringmaster::wiring {
namespace {

TEST(StrategicMerge, EveryCaseOfTheTable) {
  const auto text = ReadFile("tests/unit/wiring/merge_cases.json");
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto cases = ParseJson(*text);
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  EXPECT_GE(cases->size(), 20u);
  for (const Json& item : *cases)
    EXPECT_EQ(StrategicMerge(item["base"], item["over"]), item["merged"]) << item["name"];
}

TEST(StrategicMerge, AnEmptyOverlayChangesNothing) {
  const Json base = {{"spec", {{"containers", {{{"name", "a"}}}}}}};
  EXPECT_EQ(StrategicMerge(base, Json::object()), base);
}

TEST(StrategicMerge, MergingTwiceIsMergingOnce) {
  const auto cases = ParseJson(ReadFile("tests/unit/wiring/merge_cases.json").value());
  ASSERT_TRUE(cases.ok());
  for (const Json& item : *cases) {
    const Json once = StrategicMerge(item["base"], item["over"]);
    EXPECT_EQ(StrategicMerge(once, item["over"]), once) << item["name"];
  }
}

TEST(StrategicMerge, ElementsWithoutAKeyAreKept) {
  const Json base = {{"env", {{{"name", "A"}}}}};
  const Json over = {{"env", {{{"value", "nameless"}}, 7}}};
  EXPECT_EQ(StrategicMerge(base, over), (Json{{"env", {{{"name", "A"}}, {{"value", "nameless"}}, 7}}}));
}

TEST(StrategicMerge, AListReplacesAnotherType) {
  EXPECT_EQ(StrategicMerge({{"env", "text"}}, {{"env", {{{"name", "A"}}}}}),
            (Json{{"env", {{{"name", "A"}}}}}));
  EXPECT_EQ(StrategicMerge({{"env", {{{"name", "A"}}}}}, {{"env", "text"}}), (Json{{"env", "text"}}));
}

}  // namespace
}  // namespace ringmaster::wiring
