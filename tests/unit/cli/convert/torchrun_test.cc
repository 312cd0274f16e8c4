// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/torchrun.h"

#include <gtest/gtest.h>

namespace ringmaster::cli::convert {
namespace {

using Words = std::vector<std::string>;

TEST(ReadTorchrun, RemovesWhatTheAgentSets) {
  const Torchrun read =
      ReadTorchrun({"/opt/bin/torchrun", "--nnodes=1:4", "--rdzv-endpoint", "host:1", "--tee", "3",
                    "--rdzv_backend", "c10d", "--nproc_per_node=2", "train.py", "--nnodes", "7"});
  EXPECT_TRUE(read.found);
  EXPECT_TRUE(read.sets_processes);
  EXPECT_EQ(read.removed, (Words{"--nnodes=1:4", "--rdzv-endpoint", "host:1", "--rdzv_backend", "c10d"}));
  EXPECT_EQ(read.command,
            (Words{"/opt/bin/torchrun", "--tee", "3", "--nproc_per_node=2", "train.py", "--nnodes", "7"}));
}

TEST(ReadTorchrun, KnowsOptionsWithoutValue) {
  const Torchrun read =
      ReadTorchrun({"torchrun", "--standalone", "--no-python", "-m", "--master-port", "1", "pkg.main"});
  EXPECT_EQ(read.command, (Words{"torchrun", "--no-python", "-m", "pkg.main"}));
  EXPECT_EQ(read.removed, (Words{"--standalone", "--master-port", "1"}));
}

TEST(ReadTorchrun, FindsTheModule) {
  EXPECT_TRUE(ReadTorchrun({"python3", "-u", "-m", "torch.distributed.run", "a.py"}).found);
  EXPECT_TRUE(ReadTorchrun({"python", "-m", "torch.distributed.launch", "a.py"}).found);
  EXPECT_FALSE(ReadTorchrun({"python", "torch.distributed.run"}).found);
}

TEST(ReadTorchrun, FindsTune) {
  const Torchrun read = ReadTorchrun(
      {"/opt/bin/tune", "run", "--rdzv_endpoint=localhost:29500", "recipe", "--config", "small"});
  EXPECT_TRUE(read.found);
  EXPECT_TRUE(read.needs_option);
  EXPECT_EQ(read.options, 2u);
  EXPECT_EQ(read.removed, Words{"--rdzv_endpoint=localhost:29500"});
  EXPECT_EQ(read.command, (Words{"/opt/bin/tune", "run", "recipe", "--config", "small"}));
  EXPECT_FALSE(ReadTorchrun({"torchrun", "train.py"}).needs_option);
  EXPECT_FALSE(ReadTorchrun({"npm", "run", "train"}).found);
}

TEST(ReadTorchrun, LeavesOtherCommandsAlone) {
  const Words command = {"bash", "-c", "torchrun --nnodes=2 train.py"};
  const Torchrun shell = ReadTorchrun(command);
  EXPECT_TRUE(shell.in_shell);
  EXPECT_FALSE(shell.found);
  EXPECT_EQ(shell.command, command);
  EXPECT_FALSE(ReadTorchrun({"python", "train.py", "--nnodes", "2"}).in_shell);
  EXPECT_TRUE(ReadTorchrun({}).command.empty());
  EXPECT_EQ(ReadTorchrun({"torchrun", "--nnodes"}).command, Words{"torchrun"});
}

}  // namespace
}  // namespace ringmaster::cli::convert
