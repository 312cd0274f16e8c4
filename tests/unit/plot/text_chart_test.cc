// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/text_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/plot/runs.h"

namespace ringmaster::cli {
namespace {

using testing::HasSubstr;

TEST(TextChart, NoLineIsWiderThanTheTerminal) {
  for (const int width : {1, 40, 41, 63, 80, 200}) {
    for (const bool unicode : {false, true}) {
      const TerminalTraits traits{width, 24, true, unicode};
      std::istringstream lines(
          TextChart({DisturbedRun("a-long-name-of-a-run-that-a-user-chose", 300), RunOf("b", 20)},
                    ChartPart::kAll, traits));
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(ColumnsOf(line), std::max(40, width)) << width << ": " << line;
    }
  }
}

TEST(TextChart, HasNoEscapesWithoutColourAndOnlyAsciiWithoutUnicode) {
  const std::string text = TextChart({DisturbedRun("a", 300)}, ChartPart::kAll, {80, 24, false, false});
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  EXPECT_THAT(text, HasSubstr("w-2"));
  EXPECT_THAT(text, HasSubstr("X"));
  EXPECT_THAT(text, HasSubstr("1 failure"));
}

TEST(TextChart, BadRunsHaveText) {
  RecordedRun nan = RunOf("nan", 2);
  nan.steps[0].loss = nan.steps[1].loss = std::nan("");
  EXPECT_THAT(TextChart({nan}, ChartPart::kAll, {}), HasSubstr("not a number at step 2"));
  EXPECT_THAT(TextChart({RunOf("none", 0)}, ChartPart::kAll, {}),
              HasSubstr("no step has been committed yet"));
  EXPECT_THAT(TextChart({RunOf("one", 1)}, ChartPart::kAll, {}), HasSubstr("5.0000 at step 1"));
}

}  // namespace
}  // namespace ringmaster::cli
