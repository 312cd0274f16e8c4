// SPDX-License-Identifier: Apache-2.0

// The backend's small parts that need no API server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/backend/gang_apis.h"
#include "operator/kube/backend/host_ports.h"
#include "operator/kube/backend/lease_view.h"
#include "operator/kube/backend/missing_nodes.h"
#include "operator/kube/backend/prepared_mark.h"
#include "operator/kube/backend/sleeping_groups.h"

namespace ringmaster::kube {
namespace {

TEST(PreparationTest, AllObjectsNeedTheSameMark) {
  const core::PrepareGang action{3, 8, 4};
  const std::string mark = MarkText({action, wiring::Gang::kGate, 3, 77, {}});
  EXPECT_EQ(PreparedAction({mark, mark, mark}, 77), action);
  EXPECT_EQ(PreparedAction({mark, mark}, 77), std::nullopt);
  EXPECT_EQ(PreparedAction({}, 77), std::nullopt);
  const std::string old = MarkText({{2, 8, 4}, wiring::Gang::kGate, 1, 77, {}});
  EXPECT_EQ(PreparedAction({old, mark, mark, mark, "", "nonsense"}, 77), action);
  EXPECT_EQ(PreparedAction({old, mark, mark}, 77), (core::PrepareGang{2, 8, 4}))
      << "the older one is all there";
  EXPECT_EQ(PreparedAction({mark + "x", mark + "x", mark + "x"}, 77), std::nullopt);
  EXPECT_EQ(PreparedAction({mark, mark, mark}, 78), std::nullopt) << "another authority";
}

TEST(PreparationTest, MarksRoundTrip) {
  const PreparedMark mark{{3, 8, 4}, wiring::Gang::kVolcano, 2, ~uint64_t{0}, {20064, 64}};
  EXPECT_EQ(ParseMark(MarkText(mark)), mark);
  const PreparedMark older{{3, 8, 4}, std::nullopt, 2, 1, {20064, 64}};
  EXPECT_EQ(ParseMark("attempt=3,size=8,min=4,objects=2,authority=1,ports=20064+64"), older);
  EXPECT_EQ(MarkText(older), "attempt=3,size=8,min=4,objects=2,authority=1,ports=20064+64");
  for (const char* text : {"", "attempt=3", "attempt=3,size=8,min=4,objects=2,authority=1,ports=20064",
                           "attempt=3,size=8,min=4,gang=odd,objects=2,authority=1,ports=20064+64",
                           "attempt=3,size=8,min=4,objects=2,authority=1,ports=-1+8"})
    EXPECT_EQ(ParseMark(text), std::nullopt) << text;
  EXPECT_EQ(AuthorityHash(""), 0U);
  EXPECT_NE(AuthorityHash("one"), AuthorityHash("other"));
}

TEST(HostPortsTest, LowestGapThatIsWideEnough) {
  const PortRange all{100, 50};
  const auto first = [&](std::vector<PortRange> taken, int32_t count) {
    const auto found = FreePorts(all, std::move(taken), count);
    return found ? found->first : 0;
  };
  EXPECT_EQ(first({}, 50), 100);
  EXPECT_EQ(first({}, 51), 0);
  EXPECT_EQ(first({{100, 10}}, 40), 110);
  EXPECT_EQ(first({{100, 10}}, 41), 0);
  EXPECT_EQ(first({{130, 10}, {100, 10}}, 20), 110) << "in between, in whatever order they come";
  EXPECT_EQ(first({{130, 10}, {100, 10}}, 21), 0);
  EXPECT_EQ(first({{105, 20}, {110, 5}, {0, 0}}, 10), 125) << "overlapping, and none at all";
  EXPECT_EQ(first({{90, 15}, {145, 100}}, 40), 105) << "across the borders";
  EXPECT_EQ(first({{1000, 10}}, 50), 100);
}

TEST(HostPortsTest, AJobIsAskedAboutOnlyWhileItHoldsPorts) {
  const PortRange all{1000, 100};
  PortTable table;
  std::set<std::string> ended;
  int asked = 0;
  const auto find = [&] {
    asked = 0;
    const auto uses = [&](const std::string& job) {
      ++asked;
      return !ended.contains(job);
    };
    return table.Find(all, "ml/new", 8, {}, uses, [](const std::string&) { return true; });
  };
  for (int i = 0; i < 10'000; ++i) table.Set(fmt::format("ml/old-{}", i), {PortRange{0, 0}});
  EXPECT_EQ(find(), (PortRange{1000, 8}));
  EXPECT_EQ(asked, 0) << "these jobs are not on hostNetwork";
  table.Set("ml/a", {{1000, 8}, {1000, 8}});
  table.Set("ml/b", {{1008, 16}});
  EXPECT_EQ(find(), (PortRange{1024, 8}));
  EXPECT_EQ(asked, 2);
  ended.insert("ml/a");
  EXPECT_EQ(find(), (PortRange{1000, 8}));
  EXPECT_EQ(find(), (PortRange{1000, 8}));
  EXPECT_EQ(asked, 1) << "the one that has ended is forgotten";
  table.Set("ml/b", {});
  EXPECT_EQ(find(), (PortRange{1000, 8}));
  EXPECT_EQ(asked, 0);
}

TEST(HostPortsTest, AJobGetsItsPortsAgainIfTheyAreFree) {
  const PortRange all{1000, 100};
  const auto always = [](const std::string&) { return true; };
  PortTable table;
  table.Set("ml/a", {{1000, 8}});
  EXPECT_EQ(table.Find(all, "ml/b", 8, {1048, 16}, always, always), (PortRange{1048, 8}));
  EXPECT_EQ(table.Find(all, "ml/b", 8, {1004, 8}, always, always), (PortRange{1008, 8}))
      << "another has them";
  EXPECT_EQ(table.Find(all, "ml/a", 8, {1000, 8}, always, always), (PortRange{1000, 8})) << "its own";
  EXPECT_EQ(table.Find(all, "ml/a", 16, {1000, 8}, always, always), (PortRange{1000, 16})) << "it needs more";
}

TEST(HostPortsTest, WhileAJobWaitsNoOtherNamespaceGetsMoreThanItsShare) {
  const PortRange all{1000, 100};
  const auto always = [](const std::string&) { return true; };
  bool waits = true;
  PortTable table;
  const auto find = [&](const std::string& job, int32_t count) {
    const auto found = table.Find(all, job, count, {}, always, [&](const std::string&) { return waits; });
    if (found) table.Set(job, {*found});
    return found.has_value();
  };
  for (const char* job : {"big/a", "big/b", "big/c", "big/d"}) EXPECT_TRUE(find(job, 24)) << job;
  EXPECT_FALSE(find("small/a", 8));
  table.Set("big/a", {});
  EXPECT_FALSE(find("big/e", 24)) << "small/a waits, and big has more than half";
  EXPECT_TRUE(find("small/a", 8));
  EXPECT_FALSE(find("big/e", 24)) << "16 of the 24 are left";
  EXPECT_TRUE(find("big/f", 8)) << "no other namespace waits any more";

  EXPECT_FALSE(find("other/a", 50));
  EXPECT_FALSE(find("big/g", 4));
  waits = false;  // the job was deleted
  EXPECT_TRUE(find("big/g", 4));
}

TEST(MissingNodesTest, OnlyNodesThatPodsNameAreRemembered) {
  constexpr Time kStart = Time{} + seconds(100);
  MissingNodes nodes;
  EXPECT_EQ(nodes.Since("spot-1", kStart), kStart);
  EXPECT_EQ(nodes.Since("spot-2", kStart + seconds(1)), kStart + seconds(1));
  EXPECT_EQ(nodes.Since("spot-1", kStart + seconds(9)), kStart) << "since it was missed first";
  nodes.KeepOnly(std::map<std::string, int>{{"spot-2", 1}});
  EXPECT_EQ(nodes.size(), 1U);
  EXPECT_FALSE(nodes.Found("spot-1"));
  EXPECT_TRUE(nodes.Found("spot-2"));
  EXPECT_EQ(nodes.size(), 0U);
}

TEST(PreparationTest, AnAttemptKeepsItsGangProvider) {
  const auto mark = [](int64_t attempt, std::optional<wiring::Gang> gang) {
    return MarkText({{attempt, 8, 4}, gang, 2, 1, {}});
  };
  const std::vector<std::string> marks = {"nonsense", mark(1, wiring::Gang::kGate), mark(2, std::nullopt),
                                          mark(3, wiring::Gang::kVolcano)};
  EXPECT_EQ(PinnedGang(marks, 1), wiring::Gang::kGate);
  EXPECT_EQ(PinnedGang(marks, 2), std::nullopt);
  EXPECT_EQ(PinnedGang(marks, 3), wiring::Gang::kVolcano);
  EXPECT_EQ(PinnedGang(marks, 4), std::nullopt);
}

Json LeaseOf(const std::string& holder, WallTime renewed) {
  return {{"spec",
           {{"holderIdentity", holder}, {"leaseDurationSeconds", 15}, {"renewTime", WallTimeText(renewed)}}}};
}

TEST(LeaseViewTest, AHolderThatRenewsLives) {
  constexpr Time kStart = Time{} + seconds(100);
  const WallTime wall = *ParseWallTime("2026-11-21T09:05:00Z");
  LeaseView view;
  EXPECT_TRUE(view.Look(LeaseOf("a", wall - seconds(5)), kStart, wall));
  EXPECT_TRUE(view.Look(LeaseOf("a", wall - seconds(5)), kStart + seconds(10), wall)) << "it has 15 s";
  EXPECT_FALSE(view.Look(LeaseOf("a", wall - seconds(5)), kStart + seconds(21), wall));
  EXPECT_TRUE(view.Look(LeaseOf("b", wall + seconds(30)), kStart + seconds(31), wall));
  EXPECT_FALSE(view.Look(LeaseOf("", wall + seconds(31)), kStart + seconds(32), wall)) << "given up";
}

TEST(LeaseViewTest, AnOldLeaseIsDeadUntilItIsRenewed) {
  constexpr Time kStart = Time{} + seconds(100);
  const WallTime wall = *ParseWallTime("2026-11-21T09:05:00Z");
  LeaseView view;
  EXPECT_FALSE(view.Look(LeaseOf("a", wall - seconds(600)), kStart, wall));
  EXPECT_FALSE(view.Look(LeaseOf("a", wall - seconds(600)), kStart + seconds(10), wall));
  EXPECT_TRUE(view.Look(LeaseOf("a", wall - seconds(580)), kStart + seconds(20), wall)) << "another clock";
  EXPECT_FALSE(LeaseView().Look(Json::object(), kStart, wall));
  EXPECT_FALSE(LeaseView().Look(LeaseOf("a", wall - seconds(40)), kStart, wall))
      << "of a scheduler that ended";
}

TEST(SleepingGroupsTest, FreeCapacityWakesThemSoon) {
  constexpr Time kStart = Time{} + seconds(100);
  const std::vector<std::string> both = {"ml/a", "ml/b"};
  SleepingGroups groups;
  EXPECT_EQ(groups.Next(), kNever);
  for (const std::string& job : both) groups.Set(job, true, kStart);
  EXPECT_EQ(groups.Next(), kStart + seconds(15));
  groups.CapacityChanged(kStart + seconds(1));
  EXPECT_EQ(groups.Next(), kStart + seconds(3));
  EXPECT_TRUE(groups.Due(kStart + seconds(2)).empty());
  EXPECT_EQ(groups.Due(kStart + seconds(3)), both);
  EXPECT_EQ(groups.Next(), kStart + seconds(18)) << "nothing has changed since";
  groups.Set("ml/a", true, kStart + seconds(10));
  groups.Set("ml/b", false, kStart + seconds(10));
  EXPECT_EQ(groups.Due(kStart + seconds(18)), std::vector<std::string>{"ml/a"});
  groups.CapacityChanged(kStart + seconds(30));
  EXPECT_EQ(groups.Due(kStart + seconds(30)), std::vector<std::string>{"ml/a"}) << "long after the last time";
}

TEST(GangApisTest, ChoosesByModeAndServedApis) {
  using core::GangMode;
  using wiring::Gang;
  const GangApis none{{GangApi::kNative, ""}, {GangApi::kVolcano, ""}, {GangApi::kCoscheduling, ""}};
  GangApis volcano = none;
  volcano[GangApi::kVolcano] = "v1beta1";
  GangApis all = volcano;
  all[GangApi::kNative] = "v1beta1";
  GangApis early = volcano;
  early[GangApi::kNative] = "v1alpha2";
  const auto choose = [](GangMode mode, int32_t pods, const GangApis& apis,
                         GangMode automatic = GangMode::kAuto, bool volcano_runs = false,
                         bool native_tears = false) {
    return ChooseGang({mode, automatic, pods, volcano_runs, native_tears}, apis);
  };
  EXPECT_EQ(choose(GangMode::kAuto, 8, none), Gang::kGate);
  EXPECT_EQ(choose(GangMode::kAuto, 8, volcano), Gang::kGate) << "its definition does not schedule pods";
  EXPECT_EQ(choose(GangMode::kAuto, 8, volcano, GangMode::kAuto, true), Gang::kVolcano);
  EXPECT_EQ(choose(GangMode::kAuto, 1, volcano, GangMode::kAuto, true), Gang::kNone);
  EXPECT_EQ(choose(GangMode::kAuto, 8, none, GangMode::kAuto, true), Gang::kGate);
  EXPECT_EQ(choose(GangMode::kAuto, 8, all, GangMode::kAuto, true), Gang::kNative);
  EXPECT_EQ(choose(GangMode::kAuto, 8, all, GangMode::kAuto, true, true), Gang::kVolcano);
  EXPECT_EQ(choose(GangMode::kAuto, 8, all, GangMode::kAuto, false, true), Gang::kGate);
  EXPECT_EQ(choose(GangMode::kNative, 8, all, GangMode::kAuto, false, true), Gang::kNative);
  EXPECT_EQ(choose(GangMode::kAuto, 8, all, GangMode::kNative, false, true), Gang::kNative);
  EXPECT_EQ(choose(GangMode::kAuto, 8, early), Gang::kGate) << "its scheduler may not know gangs";
  EXPECT_EQ(choose(GangMode::kAuto, 8, early, GangMode::kAuto, true), Gang::kVolcano);
  EXPECT_EQ(choose(GangMode::kAuto, 8, early, GangMode::kNative), Gang::kNative);
  EXPECT_EQ(choose(GangMode::kNative, 8, early), Gang::kNative);
  EXPECT_EQ(choose(GangMode::kAuto, 8, volcano, GangMode::kGate, true), Gang::kGate);
  EXPECT_EQ(choose(GangMode::kAuto, 8, volcano, GangMode::kVolcano), Gang::kVolcano);
  EXPECT_EQ(choose(GangMode::kAuto, 8, none, GangMode::kVolcano), std::nullopt);
  EXPECT_EQ(choose(GangMode::kAuto, 8, all, GangMode::kGate), Gang::kGate);
  EXPECT_EQ(choose(GangMode::kAuto, 8, all), Gang::kNative);
  EXPECT_EQ(choose(GangMode::kAuto, 1, all, GangMode::kVolcano), Gang::kNone);
  EXPECT_EQ(choose(GangMode::kGate, 8, all, GangMode::kVolcano), Gang::kGate);
  EXPECT_EQ(choose(GangMode::kNone, 8, all), Gang::kNone);
  EXPECT_EQ(choose(GangMode::kVolcano, 1, all), Gang::kVolcano);
  EXPECT_EQ(choose(GangMode::kVolcano, 8, none), std::nullopt);
  EXPECT_EQ(choose(GangMode::kNative, 8, {}), std::nullopt);
  EXPECT_TRUE(IsAvailable(Gang::kGate, none) && IsAvailable(Gang::kVolcano, volcano));
  EXPECT_FALSE(IsAvailable(Gang::kVolcano, none));
  EXPECT_TRUE(PlacesAtOnce(Gang::kNative, all) && PlacesAtOnce(Gang::kVolcano, volcano));
  EXPECT_FALSE(PlacesAtOnce(Gang::kNative, {{GangApi::kNative, "v1alpha1"}})) << "the scheduler of 1.35";
  EXPECT_FALSE(PlacesAtOnce(Gang::kCoscheduling, all) || PlacesAtOnce(Gang::kGate, all));
}

TEST(GangApisTest, NativeVersionsTheNewestFirst) {
  const auto read = [](const std::vector<std::string>& versions) {
    Json listed = Json::array();
    for (const std::string& version : versions) listed.push_back({{"version", version}});
    const NativeVersions found = ReadNativeVersions({{"versions", listed}});
    std::vector<std::string> names;
    for (const wiring::NativeApi* api : found.usable) names.emplace_back(api->version);
    return std::pair(names, found.unknown);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(read({}), std::pair(Names{}, std::string()));
  EXPECT_EQ(read({"v1"}), std::pair(Names{}, std::string())) << "priority classes only";
  EXPECT_EQ(read({"v1", "v1alpha1"}), std::pair(Names{"v1alpha1"}, std::string()));
  EXPECT_EQ(read({"v1", "v1alpha2", "v1alpha3", "v1beta1"}),
            std::pair((Names{"v1beta1", "v1alpha3", "v1alpha2"}), std::string()));
  EXPECT_EQ(read({"v1", "v1beta2"}), std::pair(Names{}, std::string("v1beta2")));
  EXPECT_EQ(ReadNativeVersions("nonsense").usable.size(), 0U);
  EXPECT_EQ(ResourceOf(GangApi::kNative, "v1alpha1").plural, "workloads");
  EXPECT_EQ(GangApiOf("scheduling.k8s.io", "workloads"), GangApi::kNative);
  EXPECT_EQ(GangApiOf("kueue.x-k8s.io", "workloads"), std::nullopt);
  EXPECT_EQ(GangApiOf("scheduling.k8s.io", "priorityclasses"), std::nullopt);
}

}  // namespace
}  // namespace ringmaster::kube
