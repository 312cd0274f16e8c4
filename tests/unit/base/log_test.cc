// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace ringmaster::log {
namespace {

TEST(Log, PairsBecomeMembersAndTheRestBecomesTheMessage) {
  EXPECT_EQ(ToJsonMembers("job=a/b attempt=3 all pods run"),
            R"(,"job":"a/b","attempt":"3","msg":"all pods run")");
  EXPECT_EQ(ToJsonMembers("only words = here"), R"(,"msg":"only words = here")");
  EXPECT_EQ(ToJsonMembers("job=x"), R"(,"job":"x")");
  EXPECT_EQ(ToJsonMembers(""), "");
  EXPECT_EQ(ToJsonMembers("empty= then"), R"(,"empty":"","msg":"then")");
}

TEST(Log, TheTextOfAnErrorMayContainSpaces) {
  EXPECT_EQ(ToJsonMembers("lease=l error=GET leases rm/l: no answer job=x"),
            R"(,"lease":"l","error":"GET leases rm/l: no answer","job":"x")");
}

TEST(Log, AnyLineGivesValidJson) {
  for (const char* line :
       {"a=\"quoted\" b=\\ tail\n\t\x01", "=x", "a==b", "error=", "Upper=case", "a=b  c=d"}) {
    const auto parsed = ParseJson("{\"first\":0" + ToJsonMembers(line) + "}");
    EXPECT_TRUE(parsed.ok()) << line << ": " << ToJsonMembers(line);
  }
}

}  // namespace
}  // namespace ringmaster::log
