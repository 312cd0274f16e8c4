// SPDX-License-Identifier: Apache-2.0

#include "api/path.h"

#include <gtest/gtest.h>

#include "api/suggest.h"

namespace ringmaster::api {
namespace {

TEST(Path, PrintsTheNotationOfKubernetes) {
  const Path root;
  EXPECT_EQ(root.ToString(), "");
  const Path spec = root.Child("spec"), rules = spec.Child("rules"), first = rules.Item(0),
             when = first.Child("when");
  EXPECT_EQ(when.ToString(), "spec.rules[0].when");
}

TEST(Path, SplitInvertsToString) {
  const auto segments = SplitPath("spec.rules[0].when[a.b/c]");
  ASSERT_TRUE(segments.ok());
  ASSERT_EQ(segments->size(), 5u);
  EXPECT_EQ((*segments)[1].text, "rules");
  EXPECT_TRUE((*segments)[2].bracketed);
  EXPECT_EQ((*segments)[4].text, "a.b/c");
  for (const char* bad : {"", ".", "a.", ".a", "a..b", "a[", "a[]", "[0]", "a[0]b", "a.[0]."}) {
    EXPECT_FALSE(SplitPath(bad).ok()) << bad;
  }
  std::string deep = "a";
  for (int i = 0; i < 100; ++i) deep += ".a";
  EXPECT_FALSE(SplitPath(deep).ok());
}

TEST(Path, Ancestors) {
  EXPECT_TRUE(IsUnder("spec.workers.min", "spec.workers"));
  EXPECT_TRUE(IsUnder("spec.workers", "spec.workers"));
  EXPECT_TRUE(IsUnder("spec.rules[0]", "spec.rules"));
  EXPECT_TRUE(IsUnder("spec", ""));
  EXPECT_FALSE(IsUnder("spec.workersX", "spec.workers"));
  EXPECT_FALSE(IsUnder("spec", "spec.workers"));
}

TEST(Suggest, ReturnsTheNearestCandidateWithinTheLimit) {
  EXPECT_EQ(Nearest("replica", {"replicas", "min"}), "replicas");
  EXPECT_EQ(Nearest("repilcas", {"replicas", "min"}), "replicas");
  EXPECT_EQ(Nearest("Min", {"replicas", "min", "max"}), "min");
  EXPECT_EQ(Nearest("zzzz", {"replicas", "min"}), "");
  EXPECT_EQ(Nearest(std::string(100000, 'a'), {"replicas"}), "");
  EXPECT_EQ(Nearest("", {"a"}), "");
}

}  // namespace
}  // namespace ringmaster::api
