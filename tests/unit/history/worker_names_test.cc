// SPDX-License-Identifier: Apache-2.0

#include "cli/history/worker_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Names = std::vector<std::string>;

TEST(WorkerNames, NumbersShareOneName) {
  EXPECT_THAT(ShortNames({"gpt-1-2", "gpt-1-0", "gpt-1-3", "gpt-1-4", "gpt-1-5"}),
              ElementsAre("gpt-1-[2,0,3-5]"));
  EXPECT_THAT(ShortNames({"a-0", "a-1"}), ElementsAre("a-[0,1]"));
  EXPECT_THAT(ShortNames({"a-0", "b-0", "b-1", "b-2"}), ElementsAre("a-0", "b-[0-2]"));
  EXPECT_THAT(ShortNames({}), IsEmpty());
}

TEST(WorkerNames, TheLongFormHasEveryNameInOrder) {
  for (const Names& names :
       std::vector<Names>{{},
                          {"w"},
                          {"a-0", "a-1"},
                          {"gpt-1-2", "gpt-1-0", "gpt-1-3", "gpt-1-4", "gpt-1-5", "gpt-1-9"},
                          {"a-07", "a-7", "a-8", "a-", "7", "8"},
                          {"a-3", "a-2", "a-1", "b-4294967295", "b-4294967296", "b-1"},
                          {"a-1", "a-1", "a-1"}}) {
    EXPECT_EQ(LongNames(ShortNames(names)), names);
  }
}

TEST(WorkerNames, OtherTextsStayAsTheyAre) {
  for (const char* text : {"a-[", "a-[]", "a-[1", "a-[1,]", "a-[3-1]", "a-[x]", "a-[01]", "a-[1-2-3]", "a]",
                           "[b]", "a-[0-4294967295]", "a-[-1]", "a-[1 ,2]"})
    EXPECT_THAT(LongNames({text}), ElementsAre(text));
  EXPECT_THAT(LongNames({"a-0", "a-1"}), ElementsAre("a-0", "a-1")) << "files of earlier versions";
}

}  // namespace
}  // namespace ringmaster::cli
