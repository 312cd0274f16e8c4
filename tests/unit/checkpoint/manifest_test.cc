// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/manifest.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::checkpoint {
namespace {

using testing::HasSubstr;

Manifest Example() {
  return {.step = 300,
          .model = "abc",
          .meta = {{"cursor", 3}, {"rate", 0.30000000000000004}},
          .arrays = {{"params", "f32", 20, {{"chunk-00000", 16, 1}, {"chunk-00001", 4, 0xffffffffffffffff}}},
                     {"none", "i32", 0, {}}}};
}

TEST(Manifest, ReadsWhatItWrites) {
  const std::string text = EncodeManifest(Example());
  const auto parsed = ParseManifest(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, Example());
  EXPECT_EQ(EncodeManifest(*parsed), text);
  const auto json = ParseJson(text);  // other tools read it as plain JSON
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->at("manifest").at("step"), 300);
}

TEST(Manifest, AnyChangedBitOrLengthIsDetected) {
  const std::string text = EncodeManifest(Example());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string bad = text;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(ParseManifest(bad).ok()) << "bit " << bit;
  }
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(ParseManifest(text.substr(0, n)).ok()) << n;
  EXPECT_FALSE(ParseManifest(text + "\n").ok());
}

std::string WhyNot(const std::function<void(Json*)>& change) {
  const std::string text = EncodeManifest(Example());
  Json body = ParseJson(text)->at("manifest");
  change(&body);
  const auto parsed = ParseManifest(SealManifest(DumpJson(body)));
  return parsed.ok() ? "parsed" : parsed.error().message;
}

TEST(Manifest, ErrorsNameTheProblem) {
  EXPECT_EQ(WhyNot([](Json*) {}), "parsed");
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["format"] = 2; }), HasSubstr("format 2, this program reads 1"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["step"] = -1; }), HasSubstr("step"));
  EXPECT_THAT(WhyNot([](Json* m) { m->erase("model"); }), HasSubstr("model: required"));
  EXPECT_THAT(WhyNot([](Json* m) { m->erase("meta"); }), HasSubstr("meta: required"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"] = 3; }), HasSubstr("arrays: must be a list"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][1]["name"] = "params"; }),
              HasSubstr("params: named twice"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["type"] = "f48"; }), HasSubstr("type"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["bytes"] = 24; }), HasSubstr("shorter"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["bytes"] = 16; }), HasSubstr("longer"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["bytes"] = 18; }), HasSubstr("bytes: out of range"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["chunks"][0]["bytes"] = 0; }),
              HasSubstr("bytes: out of range"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["chunks"][0]["bytes"] = INT64_MAX; }),
              HasSubstr("bytes"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["chunks"][1]["file"] = "chunk-00000"; }),
              HasSubstr("named twice"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["chunks"][0]["file"] = "../../etc/passwd"; }),
              HasSubstr("not the name of a chunk"));
  EXPECT_THAT(WhyNot([](Json* m) { (*m)["arrays"][0]["chunks"][0]["xxh3"] = "12"; }),
              HasSubstr("hexadecimal"));
  EXPECT_THAT(ParseManifest(SealManifest("[]")).error().message, HasSubstr("object"));
  EXPECT_THAT(ParseManifest(SealManifest("{")).error().message, HasSubstr("JSON"));
}

TEST(Names, RoundTrip) {
  EXPECT_EQ(StepName(300), "step-000000000300");
  for (const int64_t step : {0L, 1L, 999999999999L, 1000000000000L})
    EXPECT_EQ(ParseStepName(StepName(step)), step);
  for (const char* name :
       {"step-300", "step-", "step-00000000030x", "step-000000000300.tmp-a", "Step-000000000300",
        "step--00000000001", "step-0000000000300", "step-99999999999999999999"}) {
    EXPECT_EQ(ParseStepName(name), std::nullopt) << name;
  }
  EXPECT_EQ(TemporaryName(3, "pod/1 x"), "step-000000000003.tmp-pod_1_x");
  EXPECT_TRUE(IsTemporaryName(TemporaryName(3, "")));
  EXPECT_FALSE(IsTemporaryName("step-000000000003"));
  EXPECT_FALSE(IsTemporaryName("my.tmp-file"));
  EXPECT_TRUE(IsChunkName(ChunkName(0)));
  EXPECT_TRUE(IsChunkName(ChunkName(123456)));
  EXPECT_FALSE(IsChunkName("chunk-0000"));
  EXPECT_FALSE(IsChunkName("chunk-0000/"));
}

}  // namespace
}  // namespace ringmaster::checkpoint
