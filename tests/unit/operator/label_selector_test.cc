// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/label_selector.h"

#include <gtest/gtest.h>

#include <utility>

namespace ringmaster::core {
namespace {

TEST(LabelSelector, SelectsAsTheApiServerDoes) {
  const std::map<std::string, std::string> labels = {
      {"team", "ml"}, {"example.com/tier", "gold"}, {"empty", ""}};
  const std::pair<const char*, bool> cases[] = {
      {"", true},
      {"team=ml", true},
      {"team==ml", true},
      {"team=vision", false},
      {"missing=ml", false},
      {"team!=vision", true},
      {"team!=ml", false},
      {"missing!=ml", true},
      {"team in (vision, ml)", true},
      {"team in (vision)", false},
      {"missing in (ml)", false},
      {"team notin (vision,ml)", false},
      {"missing notin (ml)", true},
      {"example.com/tier", true},
      {"missing", false},
      {"!missing", true},
      {"!team", false},
      {"empty=", true},
      {"empty", true},
      {"team in (ml,vision) , example.com/tier=gold,!missing", true},
      {"team in (ml,vision),!team", false},
  };
  for (const auto& [text, selected] : cases) {
    const Result<LabelSelector> selector = ParseLabelSelector(text);
    ASSERT_TRUE(selector.ok()) << text << ": " << selector.error().message;
    EXPECT_EQ(Selects(selector.value(), labels), selected) << text;
  }
  EXPECT_FALSE(Selects(ParseLabelSelector("team").value(), {}));
  for (const char* text : {",", "team=ml,", "=ml", "!", "team in ml", "team in (ml", "team of (ml)",
                           "in (ml)", "team ml", "team>1", "team=(ml)", "team in (ml) x", "team!ml"})
    EXPECT_FALSE(ParseLabelSelector(text).ok()) << text;
}

}  // namespace
}  // namespace ringmaster::core
