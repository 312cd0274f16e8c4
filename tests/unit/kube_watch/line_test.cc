// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/line.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "operator/kube/watch/lean_json.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {
namespace {

TEST(WatchLineTest, KindsAndVersions) {
  const auto added = ParseWatchLine(
      R"({"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}})");
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(added->kind, LineKind::kApply);
  EXPECT_EQ(added->resource_version, "7");
  EXPECT_EQ(ReadMeta(added->object).key, "n/a");
  EXPECT_EQ(ParseWatchLine(R"({"type":"MODIFIED","object":{"metadata":{"resourceVersion":"7"}}})")->kind,
            LineKind::kApply);
  EXPECT_EQ(ParseWatchLine(R"({"type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}})")->kind,
            LineKind::kDelete);
  EXPECT_EQ(ParseWatchLine(R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}})")->kind,
            LineKind::kBookmark);
  const auto error = ParseWatchLine(
      R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}})");
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(error->kind, LineKind::kError);
  EXPECT_EQ(error->error_code, 410);
  EXPECT_EQ(error->error_message, "too old");
}

TEST(WatchLineTest, RejectsOtherText) {
  for (const char* text :
       {"", "{", "[]", "null", R"({"type":"ADDED"})", R"({"object":{}})", R"({"type":7,"object":{}})",
        R"({"type":"ADDED","object":[]})", R"({"type":"ADDED","object":{}})",
        R"({"type":"ADDED","object":{"metadata":{}}})",
        R"({"type":"ADDED","object":{"metadata":{"resourceVersion":7}}})",
        R"({"type":"UPSERTED","object":{"metadata":{"resourceVersion":"7"}}})", "{\"type\":\"\xff\"}",
        R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}} x)"}) {
    const auto line = ParseWatchLine(text);
    ASSERT_FALSE(line.ok()) << text;
    EXPECT_EQ(line.error().code, Code::kInvalid) << text;
  }
}

TEST(LeanJsonTest, DropsOnlyManagedFields) {
  const auto json = ParseLean(
      R"({"metadata":{"name":"a","managedFields":[{"f:x":{"f:y":{}}}],"labels":{"managedFields":"mine"}},
          "managedFields":1,"spec":{"list":[1,-2,2.5,true,null,"s",[],{}]}})");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(*json, Json::parse(R"({"metadata":{"name":"a","labels":{"managedFields":"mine"}},
                                   "managedFields":1,"spec":{"list":[1,-2,2.5,true,null,"s",[],{}]}})"));
  const auto in_list =
      ParseLean(R"({"items":[{"metadata":{"managedFields":[1],"name":"a"}},{"metadata":{"name":"b"}}]})");
  EXPECT_EQ(*in_list, Json::parse(R"({"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]})"));
}

TEST(LeanJsonTest, TruncatesDeepNesting) {
  std::string text = R"({"before":1,"deep":)";
  for (int i = 0; i < 100'000; ++i) text += i % 2 == 0 ? "[" : R"({"k":)";
  for (int i = 100'000; i-- > 0;) text += i % 2 == 0 ? "]" : (i == 99'999 ? "1}" : "}");
  text += R"(,"after":2})";
  const auto json = ParseLean(text);
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ((*json)["before"], 1);
  EXPECT_EQ((*json)["after"], 2);
  size_t depth = 0;
  for (const Json* at = &*json; at->is_structured() && !at->empty(); ++depth)
    at = at->is_array() ? &(*at)[0] : depth == 0 ? &(*at)["deep"] : &(*at)["k"];
  EXPECT_GT(depth, 64U);
  EXPECT_LE(depth, kLeanDepth);
}

TEST(LeanJsonTest, LastDuplicateKeyWins) {
  EXPECT_EQ(*ParseLean(R"({"a":1,"b":{"c":1},"a":{"x":2},"b":3})"), Json::parse(R"({"a":{"x":2},"b":3})"));
}

// Any broken line gives an error or a line, never a crash.
TEST(WatchLineTest, BrokenTextNeverCrashes) {
  const std::string good =
      R"({"type":"ADDED","object":{"metadata":{"name":"a","managedFields":[{"x":[1,2]}],"resourceVersion":"7"},"spec":{"a":[1,{"b":null}]}}})";
  int parsed = 0;
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    SplitMix64 rng(seed);
    std::string text = good;
    for (uint64_t i = rng.Below(4) + 1; i > 0; --i) {
      const size_t at = rng.Below(text.size());
      switch (rng.Below(3)) {
        case 0:
          text[at] = static_cast<char>(rng.Below(256));
          break;
        case 1:
          text.erase(at, rng.Below(8) + 1);
          break;
        default:
          text.insert(at, 1, "{}[],:\"\\"[rng.Below(8)]);
      }
      if (text.empty()) break;
    }
    parsed += ParseWatchLine(text).ok() ? 1 : 0;
  }
  EXPECT_GT(parsed, 100);
  EXPECT_LT(parsed, 19'000);
}

TEST(MetaTest, InvalidMetadataReadsAsEmpty) {
  for (const char* text : {"null", "1", "[]", "{}", R"({"metadata":[]})", R"({"metadata":{"name":7}})"}) {
    const Meta meta = ReadMeta(Json::parse(text));
    EXPECT_EQ(meta.key, "") << text;
    EXPECT_EQ(meta.revision, 0U) << text;
  }
  EXPECT_EQ(ReadMeta(Json::parse(R"({"metadata":{"name":"node-1","resourceVersion":"12"}})")).key, "node-1");
  EXPECT_EQ(ParseRevision("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseRevision("18446744073709551616"), 0U);
  EXPECT_EQ(ParseRevision("-1"), 0U);
  EXPECT_EQ(ParseRevision("1x"), 0U);
}

}  // namespace
}  // namespace ringmaster::kube
