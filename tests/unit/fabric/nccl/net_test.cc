// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/net.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>

#include "rendezvous/transport_name.h"
#include "worker/fabric/nccl/api.h"
#include "worker/fabric/nccl/debug_log.h"

namespace ringmaster::fabric::nccl {
namespace {

constexpr const char* kHead = "node-7:4711:4750 [0] NCCL INFO ";

NetFacts FactsOf(const std::vector<std::string>& lines) {
  NetFacts facts;
  for (const std::string& line : lines) ParseLogLine(&facts, kHead + line);
  return facts;
}

TEST(NcclNet, InfiniBandWithGpuDirect) {
  const NetFacts facts = FactsOf({
      "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.7<0>",
      "Initialized NET plugin IB",
      "Using network IB",
      "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
      "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/1(3)/GDRDMA/Shared",
      "Channel 00/1 : 1[1] -> 2[2] via P2P/CUMEM",
  });
  EXPECT_EQ(facts.network, "IB");
  EXPECT_EQ(facts.devices, (std::vector<std::string>{"mlx5_0:1", "mlx5_1:1"}));
  EXPECT_EQ(TransportName(facts, false), "nccl:ib-gdr+p2p");
}

TEST(NcclNet, SilentFallbackToSockets) {
  const NetFacts facts = FactsOf({
      "NET/Plugin: Could not find: libnccl-net.so",
      "NET/IB : No device found.",
      "NET/Socket : Using [0]eth0:10.0.0.7<0>",
      "Using network Socket",
  });
  EXPECT_EQ(facts.devices, std::vector<std::string>{"eth0"});
  EXPECT_EQ(TransportName(facts, false), "nccl:socket") << "known before the first channel";
  EXPECT_EQ(TransportName(facts, true), "nccl") << "on one machine the network carries nothing";
  EXPECT_NE(WhySockets(facts).find("/dev/infiniband"), std::string::npos);
}

TEST(NcclNet, PluginsAndSharedMemory) {
  const NetFacts facts = FactsOf({
      "Using network AWS Libfabric",
      "Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA",
      "Channel 00 : 1[1] -> 2[2] via SHM/direct/direct",
      "GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 7 > 4)",
  });
  EXPECT_EQ(TransportName(facts, false), "nccl:aws_libfabric-gdr+shm");
  EXPECT_EQ(facts.gdr_off, "GPU Direct RDMA disabled for GPU 0 / HCA 1 (distance 7 > 4)");
}

TEST(NcclNet, AMissingPluginIsNamed) {
  const NetFacts facts =
      FactsOf({"NET/Plugin: Could not find: libnccl-net-gib.so libnccl-net.so", "Using network Socket"});
  EXPECT_NE(WhySockets(facts).find("libnccl-net-gib.so"), std::string::npos);
}

// This decides whether a job that requires RDMA has it.
TEST(NcclNet, SocketsAreTheKernelsTcp) {
  for (const char* name : {"nccl:socket", "nccl:ib+p2p+socket", "ucx:tcp", "ucx:rc_mlx5+tcp", "ucx:tcp+cma"})
    EXPECT_TRUE(rendezvous::UsesTcp(name)) << name;
  for (const char* name : {"", "none", "shm", "tcp", "ucx:", "ucx:rc_mlx5+cma", "ucx:tcp2", "ucx:socket",
                           "nccl", "nccl:ib-gdr+p2p", "nccl:tcp", "nccl:aws_libfabric-gdr"})
    EXPECT_FALSE(rendezvous::UsesTcp(name)) << name;
}

TEST(NcclNet, OtherLinesAreIgnored) {
  EXPECT_EQ(FactsOf({"", "Channel 00/02 : 0 1 2 3", "Trees [0] 1/-1/-1->0->-1", "Channel",
                     "comm 0x5 rank 0 nranks 2"}),
            NetFacts{});
}

class DebugLogTest : public ::testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"}) ::unsetenv(name);
  }
  // Writes as NCCL does.
  static void Append(std::FILE* file, const std::string& text) {
    std::fputs(text.c_str(), file);
    std::fflush(file);
  }
};

TEST_F(DebugLogTest, WholeLinesOnce) {
  auto log = DebugLog::Open();
  ASSERT_TRUE(log.ok()) << log.error().message;
  EXPECT_EQ(log->show(), DebugLog::Show::kWarnings);
  EXPECT_STREQ(::getenv("NCCL_DEBUG"), "INFO");
  std::FILE* const file = std::fopen(::getenv("NCCL_DEBUG_FILE"), "w");
  ASSERT_NE(file, nullptr);
  Append(file, "one\ntw");
  EXPECT_EQ(log->Read(), std::vector<std::string>{"one"});
  Append(file, "o\n" + std::string(20000, 'x') + "\n");
  const auto lines = log->Read();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "two");
  EXPECT_EQ(lines[1].size(), 20000u);
  Append(file, "four\n");
  EXPECT_EQ(log->Read(), std::vector<std::string>{"four"}) << "after the memory of read lines was released";
  EXPECT_TRUE(log->Read().empty());
  std::fclose(file);
}

TEST_F(DebugLogTest, UserSettingsStay) {
  ::setenv("NCCL_DEBUG", "info", 1);
  const auto all = DebugLog::Open();
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->show(), DebugLog::Show::kAll);
  EXPECT_STREQ(::getenv("NCCL_DEBUG"), "info");
  EXPECT_EQ(::getenv("NCCL_DEBUG_SUBSYS"), nullptr);

  Clear();
  const std::string path = ::testing::TempDir() + "nccl-log-of-a-user.%p";
  ::setenv("NCCL_DEBUG_FILE", path.c_str(), 1);
  auto user_log = DebugLog::Open();
  ASSERT_TRUE(user_log.ok());
  EXPECT_STREQ(::getenv("NCCL_DEBUG_FILE"), path.c_str());
  EXPECT_TRUE(user_log->Read().empty()) << "the file does not exist yet";
  const std::string real = ::testing::TempDir() + "nccl-log-of-a-user." + std::to_string(::getpid());
  std::FILE* const file = std::fopen(real.c_str(), "w");
  Append(file, "user_log line\n");
  EXPECT_EQ(user_log->Read(), std::vector<std::string>{"user_log line"});
  std::fclose(file);
  std::remove(real.c_str());
}

TEST_F(DebugLogTest, OutputToATerminalIsReadInstead) {
  ::setenv("NCCL_DEBUG_FILE", "/dev/stdout", 1);
  const auto log = DebugLog::Open();
  ASSERT_TRUE(log.ok());
  EXPECT_NE(std::string(::getenv("NCCL_DEBUG_FILE")).find("/fd/"), std::string::npos);
}

// If NCCL did not log its choices, a fallback from RDMA to sockets would go unnoticed.
TEST_F(DebugLogTest, InitIsLoggedWhateverTheUserSelects) {
  const std::pair<const char*, const char*> lists[] = {
      {"COLL", "COLL,INIT"}, {"^COLL,init,NET", "^COLL,NET"}, {"^INIT", "ALL"}, {"^ALL", "ALL"}};
  for (const auto& [user_log, ours] : lists) {
    ::setenv("NCCL_DEBUG", "INFO", 1);
    ::setenv("NCCL_DEBUG_SUBSYS", user_log, 1);
    ASSERT_TRUE(DebugLog::Open().ok());
    EXPECT_STREQ(::getenv("NCCL_DEBUG_SUBSYS"), ours);
    Clear();
  }
}

TEST(NcclLibrary, UnusableLibrariesAreRejectedWithARemedy) {
  const auto missing = LoadApi("libno-such-nccl.so");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kUnavailable);
  EXPECT_NE(missing.error().message.find("install NCCL"), std::string::npos);
  const auto other = LoadApi("libm.so.6");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kInvalid);
  EXPECT_NE(other.error().message.find("lacks nccl"), std::string::npos);
  EXPECT_EQ(VersionName(22809), "2.28.9");
}

}  // namespace
}  // namespace ringmaster::fabric::nccl
