// SPDX-License-Identifier: Apache-2.0

// Every rule finds a bad example and accepts a good one.
#include <gtest/gtest.h>

#include "tests/tidy/rules.h"

namespace ringmaster::tidy {
namespace {

using testing::Test;

TEST(ForbiddenIncludes, OperatorAndWorkerDoNotIncludeEachOther) {
  const IncludeRules& rules = AllowedIncludes();
  EXPECT_EQ(
      ForbiddenIncludes("operator/core/a.cc", "#include \"worker/agent/trainer/shared_page.h\"\n", rules)
          .size(),
      1);
  EXPECT_EQ(ForbiddenIncludes("worker/agent/a.cc", "#include \"operator/core/model.h\"\n", rules).size(), 1);
  EXPECT_EQ(ForbiddenIncludes("worker/bin/main.cc", "#include \"operator/core/model.h\"\n", rules).size(), 1);
  EXPECT_TRUE(ForbiddenIncludes("worker/bin/main.cc", "#include \"worker/trainer/main.h\"\n", rules).empty());
  EXPECT_TRUE(
      ForbiddenIncludes("cli/run/run_command.cc", "#include \"operator/local/local_backend.h\"\n", rules)
          .empty());
}

TEST(ForbiddenIncludes, LowerFoldersOfTheWorkerDoNotIncludeTheTrainer) {
  const IncludeRules& rules = AllowedIncludes();
  for (const char* folder :
       {"fabric", "compute/engine", "data", "checkpoint", "compute/numerics", "compute/optimizer"}) {
    const std::string path = std::string("worker/") + folder + "/a.h";
    EXPECT_EQ(ForbiddenIncludes(path, "#include \"worker/trainer/state.h\"\n", rules).size(), 1) << path;
    EXPECT_EQ(ForbiddenIncludes(path, "#include \"worker/agent/trainer/shared_page.h\"\n", rules).size(), 1)
        << path;
    EXPECT_TRUE(ForbiddenIncludes(path, "#include \"base/result.h\"\n#include <vector>\n", rules).empty())
        << path;
  }
}

TEST(ForbiddenIncludes, AListedSubfolderIsNotCoveredByItsParent) {
  const IncludeRules& rules = AllowedIncludes();
  EXPECT_EQ(ForbiddenIncludes("worker/trainer/a.cc", "#include \"worker/fabric/ucx/wire.h\"\n", rules).size(),
            1);
  EXPECT_EQ(ForbiddenIncludes("cli/cluster/a.cc", "#include \"cli/run/session.h\"\n", rules).size(), 1);
  EXPECT_EQ(ForbiddenIncludes("worker/compute/engine/a.cc",
                              "#include \"worker/compute/engine/models/gpt.h\"\n", rules)
                .size(),
            0);
}

TEST(ForbiddenIncludes, BaseIncludesNoOtherFolder) {
  const IncludeRules& rules = AllowedIncludes();
  EXPECT_EQ(ForbiddenIncludes("base/a.h", "  #  include \"api/load.h\"\n", rules).size(), 1);
  EXPECT_EQ(ForbiddenIncludes("base/a.h", "#include \"result.h\"\n", rules).size(), 1);
  EXPECT_TRUE(ForbiddenIncludes("tests/a.cc", "#include \"anything.h\"\n", rules).empty());
}

TEST(HeaderRules, RequirePragmaOnceAndForbidUsingNamespace) {
  EXPECT_EQ(HeaderRules("int x;\n").size(), 1);
  EXPECT_EQ(HeaderRules("#pragma once\nusing  namespace std;\n").size(), 1);
  EXPECT_TRUE(HeaderRules("#pragma once\n// using namespace is a bad idea\n").empty());
}

TEST(TodoMarks, AreFoundInCommentsToo) {
  EXPECT_EQ(TodoMarks(std::string("int a;  // TO") + "DO: later\n").front().line, 1);
  EXPECT_TRUE(TodoMarks("// todo lists are what this program prints\n").empty());
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
  EXPECT_TRUE(Sleeps("while held(step):\n    time.sleep(0.01)\n").empty());
  EXPECT_EQ(Sleeps("while True:\n    time.sleep(0.01)\n").size(), 1);
  EXPECT_TRUE(Sleeps("// no sleep_for here\nlog(\"sleep_for\");\n").empty());
}

TEST(UnfilteredOutput, IsFoundInCode) {
  EXPECT_EQ(UnfilteredOutput("  std::printf(\"%s\", name);\n").size(), 1);
  EXPECT_EQ(UnfilteredOutput("std::fputs(text.c_str(), stdout);\n").size(), 1);
  EXPECT_EQ(UnfilteredOutput("fmt::print(stderr, text);\n").size(), 1);
  EXPECT_EQ(UnfilteredOutput("std::cout << text;\n").size(), 1);
  EXPECT_TRUE(UnfilteredOutput("Print(stdout, text);\nsnprintf(a, b);\n// printf(x)\n").empty());
}

TEST(RawMemory, OwnersAreAllowed) {
  EXPECT_EQ(RawMemory("auto* p = new Thing(3);\n").size(), 1);
  EXPECT_EQ(RawMemory("delete p;\n").size(), 1);
  EXPECT_EQ(RawMemory("void* p = malloc(3);\n").size(), 1);
  EXPECT_TRUE(RawMemory("return std::unique_ptr<Thing>(new Thing(3));\n").empty());
  EXPECT_TRUE(RawMemory("Thing(const Thing&) = delete;\n").empty());
  EXPECT_TRUE(RawMemory("// a new generation; delete it later\n").empty());
}

TEST(UncheckedCasts, CharactersAddressesAndFunctionsOfLibrariesAreAllowed) {
  EXPECT_EQ(UncheckedCasts("auto* x = reinterpret_cast<const float*>(bytes.data());\n").size(), 1);
  EXPECT_EQ(UncheckedCasts("if (auto* x = dynamic_cast<Derived*>(base)) Use(x);\n").size(), 1);
  EXPECT_EQ(UncheckedCasts("f(reinterpret_cast<char*>(a), reinterpret_cast<int*>(b));\n").size(), 1);
  EXPECT_TRUE(UncheckedCasts("SHA256(reinterpret_cast<const unsigned char*>(text.data()), n);\n").empty());
  EXPECT_TRUE(UncheckedCasts("bind(fd, reinterpret_cast<sockaddr*>(&address), size);\n").empty());
  EXPECT_TRUE(UncheckedCasts("auto f = reinterpret_cast<Function>(::dlsym(handle, kName));\n").empty());
  EXPECT_TRUE(UncheckedCasts("// reinterpret_cast<int*>(x)\n").empty());
}

TEST(UncheckedFolders, AreThoseOfTheFirstRule) {
  EXPECT_EQ(UncheckedFolders("if(folder MATCHES \"^(a|b)(/|$)\" OR\n  folder MATCHES \"^c\")\n"
                             "set_target_properties(${name} PROPERTIES RINGMASTER_PLAIN_OBJECTS ON)\n"
                             "if(NOT folder MATCHES \"^d\")\n"),
            (std::vector<std::string>{"^(a|b)(/|$)", "^c"}));
}

TEST(LicenceLine, IsInTheFirstFiveLines) {
  EXPECT_TRUE(LicenceLine("#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n").empty());
  EXPECT_EQ(LicenceLine("int x;\n").size(), 1);
  EXPECT_EQ(LicenceLine("// SPDX-License-Identifier: MIT\n").size(), 1);
  EXPECT_EQ(LicenceLine("\n\n\n\n\n// SPDX-License-Identifier: Apache-2.0\n").size(), 1);
}

TEST(NeverRuns, WithoutAStart) {
  EXPECT_TRUE(
      NeverRuns("class A:\n    pass\n\n\nif __name__ == \"__main__\":\n    unittest.main()\n").empty());
  EXPECT_EQ(NeverRuns("class A:\n    pass\n").size(), 1);
}

TEST(RelativeLinks, SkipUrlsAndCode) {
  const std::string text =
      "[a](docs/a.md#part) [b](https://x.org/y) [c](#here)\n```\n[d](no.md)\n```\n[e](LICENSE)\n";
  EXPECT_EQ(RelativeLinks(text), (std::vector<std::string>{"docs/a.md", "LICENSE"}));
}

}  // namespace
}  // namespace ringmaster::tidy
