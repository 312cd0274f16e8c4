// SPDX-License-Identifier: Apache-2.0

// The plan that all members derive from their MemberInfos.
#include "worker/fabric/nccl/plan.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ringmaster::fabric::nccl {
namespace {

std::vector<MemberInfo> Members(int world) {
  std::vector<MemberInfo> members(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) {
    MemberInfo& member = members[static_cast<size_t>(r)];
    member.gpu = DigestOf("GPU-" + std::to_string(r));
    member.bus = DigestOf("bus " + std::to_string(r));
    member.host = DigestOf("host");
    member.version = 22809;
    member.parent = 5;
    member.parent_rank = r;
    member.parent_world = world;
  }
  return members;
}

TEST(NcclPlan, OnlyLossesInTheOldOrderShrink) {
  std::vector<MemberInfo> members = Members(5);
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kInit) << "no member is missing";
  members.erase(members.begin() + 3);
  members.erase(members.begin());
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kShrink);
  EXPECT_EQ(MakePlan(members)->excluded, (std::vector<int>{0, 3}));
  std::swap(members[0], members[1]);
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kInit) << "in another order";
  std::swap(members[0], members[1]);
  members[2].parent = 0;
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kInit) << "one has no parent";
  members[2].parent = 4;
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kInit) << "one has a parent of another generation";
  EXPECT_EQ(MakePlan(std::span(members).first(1))->method, Plan::Method::kSingle);
}

// `old` members of generation 5, and new members after them.
std::vector<MemberInfo> Grown(int old, int world) {
  std::vector<MemberInfo> members = Members(world);
  for (int r = 0; r < world; ++r) {
    MemberInfo& member = members[static_cast<size_t>(r)];
    member.parent = r < old ? 5 : 0;
    member.parent_rank = r < old ? r : 0;
    member.parent_world = r < old ? old : 0;
    member.growable = r < old ? 1 : 0;
  }
  return members;
}

TEST(NcclPlan, OnlyNewMembersAfterAllOthersGrow) {
  const auto method = [](const std::vector<MemberInfo>& members) { return MakePlan(members)->method; };
  EXPECT_EQ(method(Grown(3, 5)), Plan::Method::kGrow);
  EXPECT_EQ(method(Grown(2, 3)), Plan::Method::kGrow);
  EXPECT_EQ(method(Grown(3, 3)), Plan::Method::kInit) << "no member is new";
  std::vector<MemberInfo> members = Grown(3, 5);
  std::swap(members[0], members[1]);
  EXPECT_EQ(method(members), Plan::Method::kInit) << "in another order";
  members = Grown(3, 5);
  std::swap(members[2], members[3]);
  EXPECT_EQ(method(members), Plan::Method::kInit) << "a new member is in between";
  members = Grown(3, 5);
  std::swap(members[0], members[4]);
  EXPECT_EQ(method(members), Plan::Method::kInit) << "a new member is first";
  members = Grown(3, 5);
  members.erase(members.begin() + 1);
  EXPECT_EQ(method(members), Plan::Method::kInit) << "one was lost at the same time";
  members = Grown(3, 5);
  members.erase(members.begin() + 2);
  EXPECT_EQ(method(members), Plan::Method::kInit) << "the last one was lost";
  members = Grown(3, 5);
  members[1].parent = 0;
  EXPECT_EQ(method(members), Plan::Method::kInit) << "one has no parent";
  members = Grown(3, 5);
  members[2].parent = 4;
  EXPECT_EQ(method(members), Plan::Method::kInit) << "one has a parent of another generation";
  members = Grown(3, 5);
  members[2].parent_world = 4;
  EXPECT_EQ(method(members), Plan::Method::kInit) << "they disagree on the size of the parent";
  members = Grown(3, 5);
  members[4].parent = 5;
  EXPECT_EQ(method(members), Plan::Method::kInit) << "a new member has a parent";
  members = Grown(3, 5);
  members[1].growable = 0;
  EXPECT_EQ(method(members), Plan::Method::kInit) << "one was revoked";
}

TEST(NcclPlan, UnsupportedGroups) {
  std::vector<MemberInfo> members = Members(3);
  members[2].gpu = members[0].gpu;
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kNone);
  EXPECT_NE(MakePlan(members)->why_none.find("ranks 0 and 2 share a GPU"), std::string::npos);
  members = Members(3);
  members[1].bus = members[0].bus;
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kNone);
  EXPECT_EQ(MakePlan(members)->why_none, "ranks 0 and 1 have instances (MIG) of one GPU, which NCCL refuses");
  members[1].host = DigestOf("other");
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kInit) << "the same PCI address on another machine";
  members = Members(3);
  members[1].version = 0;
  EXPECT_EQ(MakePlan(members)->why_none, "rank 1 has no NCCL");
  members = Members(3);
  members[0].version = 0;
  EXPECT_EQ(MakePlan(members)->why_none, "rank 0 has no NCCL");
  members = Members(3);
  members[1].version = 22703;
  ASSERT_FALSE(MakePlan(members).ok());
  EXPECT_EQ(MakePlan(members).error().message,
            "rank 0 has NCCL 2.28.9 and rank 1 has 2.27.3: use one image for all workers");
  members = Members(3);
  members[1].host = DigestOf("other");
  EXPECT_FALSE(MakePlan(members)->one_host);
}

TEST(NcclPlan, MembersShareAGpuWhereTheUserSaysSoForAll) {
  std::vector<MemberInfo> members = Members(3);
  for (MemberInfo& member : members) {
    member.parent = 0;
    member.gpu = members[0].gpu;
    member.bus = members[0].bus;
    member.shares_gpu = 1;
  }
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kInit);
  members[1].shares_gpu = 0;
  EXPECT_EQ(MakePlan(members)->method, Plan::Method::kNone) << "rank 1 would refuse";
}

TEST(NcclPlan, MemoryIsRegisteredEverywhereOrNowhere) {
  std::vector<MemberInfo> members = Members(3);
  for (MemberInfo& member : members) member.nccl_memory = 1;
  EXPECT_TRUE(MakePlan(members)->register_memory);
  for (const size_t other : {0, 1, 2}) {
    members[other].nccl_memory = 0;
    EXPECT_FALSE(MakePlan(members)->register_memory) << other;
    members[other].nccl_memory = 1;
  }
}

}  // namespace
}  // namespace ringmaster::fabric::nccl
