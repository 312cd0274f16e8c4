// SPDX-License-Identifier: Apache-2.0

// Each rule must be able to fail.
#include <gtest/gtest.h>

#include "tests/tidy/rules.h"

namespace ringmaster::tidy {
namespace {

using testing::Test;

TEST(WrongArrows, OperatorAndWorkerDoNotKnowEachOther) {
  const Arrows& arrows = HouseArrows();
  EXPECT_EQ(WrongArrows("operator/core/a.cc", "#include \"worker/agent/shared_page.h\"\n", arrows).size(), 1);
  EXPECT_EQ(WrongArrows("worker/agent/a.cc", "#include \"operator/core/model.h\"\n", arrows).size(), 1);
  EXPECT_EQ(WrongArrows("worker/main.cc", "#include \"operator/core/model.h\"\n", arrows).size(), 1);
  EXPECT_TRUE(WrongArrows("worker/main.cc", "#include \"worker/agent/agent.h\"\n", arrows).empty());
  EXPECT_TRUE(
      WrongArrows("cli/run/run_command.cc", "#include \"operator/local/local_backend.h\"\n", arrows).empty());
}

TEST(WrongArrows, LowerPartsOfTheWorkerDoNotKnowTheTrainer) {
  const Arrows& arrows = HouseArrows();
  for (const char* folder :
       {"fabric", "compute/engine", "data", "checkpoint", "compute/numerics", "compute/optimizer"}) {
    const std::string path = std::string("worker/") + folder + "/a.h";
    EXPECT_EQ(WrongArrows(path, "#include \"worker/trainer/state.h\"\n", arrows).size(), 1) << path;
    EXPECT_EQ(WrongArrows(path, "#include \"worker/agent/shared_page.h\"\n", arrows).size(), 1) << path;
    EXPECT_TRUE(WrongArrows(path, "#include \"base/result.h\"\n#include <vector>\n", arrows).empty()) << path;
  }
}

TEST(WrongArrows, BaseKnowsNobodyAndPathsComeFromTheRoot) {
  const Arrows& arrows = HouseArrows();
  EXPECT_EQ(WrongArrows("base/a.h", "  #  include \"api/load.h\"\n", arrows).size(), 1);
  EXPECT_EQ(WrongArrows("base/a.h", "#include \"result.h\"\n", arrows).size(), 1);
  EXPECT_TRUE(WrongArrows("tests/a.cc", "#include \"anything.h\"\n", arrows).empty());
}

TEST(HeaderRules, WantPragmaOnceAndNoUsingNamespace) {
  EXPECT_EQ(HeaderRules("int x;\n").size(), 1);
  EXPECT_EQ(HeaderRules("#pragma once\nusing  namespace std;\n").size(), 1);
  EXPECT_TRUE(HeaderRules("#pragma once\n// using namespace is a bad idea\n").empty());
}

TEST(LeftoverMarks, AreFoundInCommentsToo) {
  EXPECT_EQ(LeftoverMarks(std::string("int a;  // TO") + "DO: later\n").front().line, 1);
  EXPECT_TRUE(LeftoverMarks("// todo lists are what this program prints\n").empty());
}

TEST(TooLong, CountsLines) {
  EXPECT_TRUE(TooLong("a\nb\nc\n", 3).empty());
  EXPECT_EQ(TooLong("a\nb\nc\nd\n", 3).size(), 1);
}

TEST(Sleeps, AreFoundInCodeOnly) {
  EXPECT_EQ(Sleeps("std::this_thread::sleep_for(1ms);\n").size(), 1);
  EXPECT_EQ(Sleeps("  time.sleep(1)\n").size(), 1);
  EXPECT_EQ(Sleeps("::sleep(1);\n").size(), 1);
  EXPECT_TRUE(Sleeps("while (!done()) {\n  if (late()) return false;\n  sleep_for(1ms);\n}\n").empty());
  EXPECT_EQ(Sleeps("while (!done()) {\n  a();\n  b();\n  c();\n  sleep_for(1ms);\n}\n").size(), 1);
  EXPECT_TRUE(Sleeps("// no sleep_for here\nlog(\"sleep_for\");\n").empty());
}

TEST(RawMemory, ExpressionsAreFoundOwnersAreNot) {
  EXPECT_EQ(RawMemory("auto* p = new Thing(3);\n").size(), 1);
  EXPECT_EQ(RawMemory("delete p;\n").size(), 1);
  EXPECT_EQ(RawMemory("void* p = malloc(3);\n").size(), 1);
  EXPECT_TRUE(RawMemory("return std::unique_ptr<Thing>(new Thing(3));\n").empty());
  EXPECT_TRUE(RawMemory("Thing(const Thing&) = delete;\n").empty());
  EXPECT_TRUE(RawMemory("// a new generation; delete it later\n").empty());
}

TEST(LicenceLine, IsInTheFirstFiveLines) {
  EXPECT_TRUE(LicenceLine("#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n").empty());
  EXPECT_EQ(LicenceLine("int x;\n").size(), 1);
  EXPECT_EQ(LicenceLine("// SPDX-License-Identifier: MIT\n").size(), 1);
  EXPECT_EQ(LicenceLine("\n\n\n\n\n// SPDX-License-Identifier: Apache-2.0\n").size(), 1);
}

TEST(RelativeLinks, LeaveOutTheWebAndCode) {
  const std::string text =
      "[a](docs/a.md#part) [b](https://x.org/y) [c](#here)\n```\n[d](no.md)\n```\n[e](LICENSE)\n";
  EXPECT_EQ(RelativeLinks(text), (std::vector<std::string>{"docs/a.md", "LICENSE"}));
}

}  // namespace
}  // namespace ringmaster::tidy
