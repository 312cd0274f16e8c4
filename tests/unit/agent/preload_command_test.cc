// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/preload_command.h"

#include <gtest/gtest.h>

namespace ringmaster::agent {
namespace {

using Words = std::vector<std::string>;

TEST(PreloadCommand, PutsTheRunnerInFrontOfTheScript) {
  const auto command = [](const Words& words) {
    const auto out = PreloadCommand(words, {"torch", "torch.nn"}, "/r/preload.py");
    return out.ok() ? *out : Words{out.error().message};
  };
  EXPECT_EQ(command({"python", "train.py", "-m", "x"}),
            (Words{"python", "/r/preload.py", "torch,torch.nn", "train.py", "-m", "x"}));
  EXPECT_EQ(command({"/usr/bin/python3.11", "-u", "-X", "dev", "-W", "ignore", "-m", "mod", "--lr", "1"}),
            (Words{"/usr/bin/python3.11", "-u", "-X", "dev", "-W", "ignore", "/r/preload.py",
                   "torch,torch.nn", "-m", "mod", "--lr", "1"}));
}

TEST(PreloadCommand, RefusesWhatHasNoScript) {
  for (const Words& words : {Words{}, Words{"torchrun", "train.py"}, Words{"sh", "-c", "python train.py"},
                             Words{"pythonic", "a"}, Words{"python"}, Words{"python", "-c", "1"},
                             Words{"python", "-Ec", "1"}, Words{"python", "-um", "mod"}, Words{"python", "-"},
                             Words{"python", "-m"}, Words{"python", "-X", "dev"}, Words{"python3", "-u"}}) {
    const auto out = PreloadCommand(words, {"torch"}, "r");
    ASSERT_FALSE(out.ok()) << (words.empty() ? "" : words.back());
    EXPECT_NE(out.error().message.find("launch.preload needs a command"), std::string::npos);
  }
}

}  // namespace
}  // namespace ringmaster::agent
