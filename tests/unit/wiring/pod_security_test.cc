// SPDX-License-Identifier: Apache-2.0

// e2e/wiring checks the same pods, and more, with the real admission plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "operator/wiring/merge.h"
#include "operator/wiring/wiring.h"
#include "tests/unit/wiring/jobs.h"

namespace ringmaster::wiring {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Json PlainPod() { return PodOf(JobWith(), "uid-1", 0, PlainContext()); }

TEST(PodSecurity, DefaultsAreRestricted) {
  EXPECT_THAT(PodSecurityRefusals(PlainPod(), "restricted"), IsEmpty());
  EXPECT_THAT(PodSecurityRefusals(PlainPod(), "baseline"), IsEmpty());
}

TEST(PodSecurity, PrivilegedRefusesNothing) {
  const Case item = LoadCase("template-privileged");
  const Json pod = PodOf(item.job, "uid-1", 0, item.context);
  EXPECT_THAT(PodSecurityRefusals(pod, "privileged"), IsEmpty());
  EXPECT_THAT(PodSecurityRefusals(pod, ""), IsEmpty());
}

TEST(PodSecurity, NamesFieldAndRemedy) {
  const Case item = LoadCase("rdma-shared-device");
  EXPECT_THAT(
      PodSecurityRefusals(PodOf(item.job, "uid-1", 0, item.context), "baseline"),
      testing::ElementsAre("spec.containers[worker].securityContext.capabilities.add has IPC_LOCK, which Pod "
                           "Security level baseline refuses; remove spec.network.rdma from the job, which "
                           "needs it to pin memory, or label the namespace "
                           "pod-security.kubernetes.io/enforce=privileged"));
}

TEST(PodSecurity, EveryManifest) {
  for (const Case& item : AllCases()) {
    const Json pod = PodOf(item.job, "uid-1", 0, item.context);
    EXPECT_EQ(PodSecurityRefusals(pod, "baseline").empty(), item.refused_by != "baseline") << item.name;
    EXPECT_EQ(PodSecurityRefusals(pod, "restricted").empty(), item.refused_by == "none") << item.name;
  }
}

// pod_security_cases.json: changes to the default pod, with the level that refuses each.
TEST(PodSecurity, EveryCaseOfTheTable) {
  const auto cases = ParseJson(ReadFile("tests/unit/wiring/pod_security_cases.json").value());
  ASSERT_TRUE(cases.ok());
  for (const Json& item : *cases) {
    const Json pod = StrategicMerge(PlainPod(), item["change"]);
    const std::string refused_by = item["refused_by"];
    EXPECT_EQ(PodSecurityRefusals(pod, "baseline").empty(), refused_by != "baseline") << item["name"];
    EXPECT_EQ(PodSecurityRefusals(pod, "restricted").empty(), refused_by == "none") << item["name"];
  }
}

}  // namespace
}  // namespace ringmaster::wiring
