// SPDX-License-Identifier: Apache-2.0

#include "api/forms.h"

#include <gtest/gtest.h>

#include "api/load.h"

namespace ringmaster::api {
namespace {

TEST(ParseDecimal, ReadsFiniteDecimals) {
  const std::vector<std::pair<const char*, double>> cases = {
      {"0", 0},         {"3e-4", 3e-4}, {"1E+2", 100}, {".5", 0.5},    {"5.", 5},
      {"-1.25", -1.25}, {"+2", 2},      {"007", 7},    {"1e99", 1e99}, {"123456789.125", 123456789.125}};
  for (const auto& [text, value] : cases) {
    const auto parsed = ParseDecimal(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, value) << text;
  }
}

TEST(ParseDecimal, RejectsOtherText) {
  for (const char* text :
       {"",     " ",   "1 ",  " 1",    "+",      "-",      ".",  "e5",  "1e",   "1e+",   "--1", "+-1", "1,5",
        "0x10", "inf", "nan", "1e100", "1e9999", "1e-999", "1f", "1_0", "1..2", "1.2.3", "one", "\n1"}) {
    const auto parsed = ParseDecimal(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
  }
  EXPECT_FALSE(ParseDecimal(std::string(100000, '1')).ok());
}

TEST(Forms, Examples) {
  struct Case {
    Form form;
    std::vector<const char*> good, bad;
  };
  const std::vector<Case> cases = {
      {Form::kDnsLabel, {"a", "1", "a-1"}, {"", "A", "a_b", "-a", "a-", "a.b", "ä", "a\n"}},
      {Form::kDnsSubdomain, {"a", "a.b", "a-1.b-2"}, {"", "a..b", ".a", "a.", "a.-b", "A"}},
      {Form::kQualifiedName, {"a", "A_b.c", "x.y/Z"}, {"", "/a", "a/", "a/b/c", "X/y", "a b"}},
      {Form::kAnnotation, {"a", "x.y/Z", "Example.COM/y", "X/y"}, {"", "/a", "a/", "a/b/c", "a b", "-X/y"}},
      {Form::kLabelValue, {"", "a", "A-b_c.1"}, {"-a", "a-", "a b", "a/b"}},
      {Form::kResource, {"rdma/ib", "nvidia.com/gpu"}, {"", "ib", "rdma/", "/ib", "rdma/ib "}},
      {Form::kNetwork, {"a", "ns/a", "ns/a@eth1", "a@net-1"}, {"", "a@", "ns/", "A", "a b", "x/y/z"}},
      {Form::kSlots, {"gpu", "1", "999"}, {"", "0", "01", "1000", "GPU", "-1"}},
      {Form::kAutoSeconds, {"auto", "0", "1", "999999"}, {"", "01", "-1", "1000000", "1s"}},
  };
  for (const Case& c : cases) {
    for (const char* text : c.good)
      EXPECT_TRUE(Matches(c.form, text)) << TextOf(c.form).pattern << " " << text;
    for (const char* text : c.bad)
      EXPECT_FALSE(Matches(c.form, text)) << TextOf(c.form).pattern << " " << text;
    EXPECT_FALSE(Matches(c.form, std::string(1 << 20, 'a')));
  }
}

}  // namespace
}  // namespace ringmaster::api
