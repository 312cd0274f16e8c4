// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/plot/runs.h"

namespace ringmaster::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Chart, ShowsCurvesWorkersAndRecoveries) {
  const std::string svg =
      ToSvg(DrawChart({DisturbedRun("disturbed", 100), RunOf("undisturbed", 100)}, ChartPart::kAll));
  EXPECT_THAT(svg, HasSubstr("disturbed  step 100, loss 0.5000"));
  EXPECT_THAT(svg, HasSubstr("all 100 losses are equal, bit for bit"));
  EXPECT_THAT(svg, HasSubstr("Workers of disturbed"));
  EXPECT_THAT(svg, Not(HasSubstr("Workers of undisturbed"))) << "it has no events";
  EXPECT_THAT(svg, HasSubstr("3 generations, 1 failure, recovered in 10 ms (median of 1)"));
  for (const char* pod : {">w-0<", ">w-1<", ">w-2<", ">w-3<"}) EXPECT_THAT(svg, HasSubstr(pod));
  EXPECT_THAT(svg, HasSubstr("checkpoint of step 50"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
}

TEST(Chart, EqualLossesAreClaimedOnlyWhenEveryBitIsEqual) {
  RecordedRun other = RunOf("other", 100);
  other.steps[50].loss = std::nextafter(other.steps[50].loss, 10.0);
  EXPECT_EQ(EqualLossesText({RunOf("one", 100), other}), "");
  EXPECT_EQ(EqualLossesText({RunOf("one", 100)}), "");
  EXPECT_EQ(EqualLossesText({RunOf("one", 0), RunOf("none", 5)}), "") << "no step in common";
  EXPECT_THAT(EqualLossesText({RunOf("one", 100), RunOf("shorter", 40)}), HasSubstr("all 40 losses"));
}

TEST(Chart, ALossThatIsNotANumberIsAGapAndIsCounted) {
  RecordedRun run = RunOf("nan", 100);
  run.steps[40].loss = std::nan("");
  run.steps[99].loss = std::numeric_limits<double>::infinity();
  const std::string svg = ToSvg(DrawChart({run}, ChartPart::kLoss));
  EXPECT_THAT(svg, HasSubstr("loss not a number (2 steps without a number)"));
  EXPECT_THAT(svg, Not(HasSubstr("nan,")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_EQ(Count(svg, "stroke-width=\"1.5\""), 2U) << "the curve before the gap, and after it";
}

TEST(Chart, OneStepIsADotAndNoneIsASentence) {
  EXPECT_THAT(ToSvg(DrawChart({RunOf("one", 1)}, ChartPart::kAll)), HasSubstr("step 1, loss 5.0000"));
  EXPECT_THAT(ToSvg(DrawChart({RunOf("none", 0)}, ChartPart::kAll)),
              HasSubstr("no step has been committed yet"));
}

TEST(Chart, NamesAreEscaped) {
  const std::string svg = ToSvg(DrawChart({RunOf("<script>&\"\x1b[31m", 3)}, ChartPart::kAll));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot; [31m"));
}

TEST(Chart, AMillionStepsMakeASmallFile) {
  const std::string svg = ToSvg(DrawChart({RunOf("long", 1'000'000)}, ChartPart::kLoss));
  EXPECT_LT(svg.size(), 100'000U);
}

TEST(Chart, ARunWithoutItsEndSaysSo) {
  RecordedRun run = DisturbedRun("running", 10);
  run.events.pop_back();
  run.timeline = TimelineOf(run.events);
  EXPECT_THAT(GangText(run.timeline), HasSubstr("still running"));
}

}  // namespace
}  // namespace ringmaster::cli
