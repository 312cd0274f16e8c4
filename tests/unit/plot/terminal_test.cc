// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/terminal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ringmaster::cli {
namespace {

TEST(Sparkline, HasOneCharacterPerValueUntilItIsFull) {
  const std::vector<double> values = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(Sparkline(values, 20, true), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(ColumnsOf(Sparkline(values, 4, true)), 4);
  EXPECT_EQ(Sparkline(values, 8, false).size(), 8U);
  EXPECT_EQ(Sparkline({}, 8, true), "");
  EXPECT_EQ(Sparkline(values, 0, true), "");
}

TEST(Sparkline, OneValueAndNoNumberHaveAPlace) {
  EXPECT_EQ(ColumnsOf(Sparkline(std::vector<double>{3, 3, 3}, 8, true)), 3);
  EXPECT_EQ(Sparkline(std::vector<double>{0, std::nan(""), 1}, 8, true), "▁ █");
}

TEST(Columns, CountCharactersAndNotEscapes) {
  EXPECT_EQ(ColumnsOf("a\x1b[31mb\x1b[0m▁"), 3);
  EXPECT_EQ(CutToColumns("▁▂▃▄", 2), "▁▂");
  EXPECT_EQ(CutToColumns("ab", 5), "ab");
}

}  // namespace
}  // namespace ringmaster::cli
