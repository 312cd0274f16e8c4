// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/known_faults.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/temp_folder.h"

namespace ringmaster::fabric::ucx {
namespace {

const RdmaPort kSoft = {"rxe0:1", false, true, true};

KnownFaults Find(unsigned minor, std::vector<RdmaPort> ports, std::map<std::string, std::string> set = {}) {
  return FindKnownFaults(
      {1, minor}, "1." + std::to_string(minor) + ".0", ports, [&](const std::string& name) {
        const auto found = set.find(name);
        return found == set.end() ? std::nullopt : std::optional<std::string>(found->second);
      });
}

TEST(KnownFaults, Ipv4IsRefusedWhereUcxDropsItsPackets) {
  const KnownFaults found = Find(18, {kSoft});
  ASSERT_TRUE(found.refusal);
  EXPECT_TRUE(found.refusal->starts_with("UCX 1.18.0 cannot connect over the RDMA port rxe0:1: "))
      << *found.refusal;
  EXPECT_FALSE(Find(19, {kSoft}).refusal);
  EXPECT_FALSE(Find(18, {}).refusal);
  EXPECT_FALSE(Find(18, {{"mlx5_0:1", true, true, true}}).refusal) << "NVIDIA's devices fill the field";
  EXPECT_FALSE(Find(18, {{"rxe0:1", false, true, false}}).refusal) << "IPv6 alone";
  EXPECT_FALSE(Find(18, {{"hfi1_0:1", false, false, false}}).refusal) << "InfiniBand";
  EXPECT_FALSE(Find(18, {kSoft}, {{"UCX_IB_GID_INDEX", "2"}}).refusal);
  EXPECT_TRUE(Find(18, {kSoft}, {{"UCX_IB_GID_INDEX", "auto"}}).refusal);
}

TEST(KnownFaults, APortThatUcxMayNotUseDoesNotCount) {
  for (const char* without : {"tcp", "tcp,sm,self", "^ib", "^ud_verbs,cma"})
    EXPECT_FALSE(Find(13, {kSoft}, {{"UCX_TLS", without}}).refusal) << without;
  for (const char* with : {"all", "rc,tcp", "rc_verbs", "ud", "ib", "^tcp"})
    EXPECT_TRUE(Find(13, {kSoft}, {{"UCX_TLS", with}}).refusal) << with;
  for (const char* without : {"eth0", "rxe1:1,eth0", "^rxe0:1"})
    EXPECT_FALSE(Find(13, {kSoft}, {{"UCX_NET_DEVICES", without}}).refusal) << without;
  for (const char* with : {"all", "eth0,rxe0:1", "^eth0"})
    EXPECT_TRUE(Find(13, {kSoft}, {{"UCX_NET_DEVICES", with}}).refusal) << with;
}

TEST(KnownFaults, APortNextToAHealthyOneIsAWarning) {
  const RdmaPort healthy = {"mlx5_0:1", true, true, true};
  for (const auto& ports : {std::vector{kSoft, healthy}, std::vector{healthy, kSoft}}) {
    const KnownFaults found = Find(18, ports);
    EXPECT_FALSE(found.refusal);
    ASSERT_EQ(found.warnings.size(), 1u);
    EXPECT_TRUE(found.warnings[0].starts_with("UCX 1.18.0 cannot connect over the RDMA port rxe0:1: "))
        << found.warnings[0];
  }
  EXPECT_TRUE(Find(18, {kSoft, healthy}, {{"UCX_NET_DEVICES", "mlx5_0:1"}}).warnings.empty());
  EXPECT_TRUE(Find(18, {kSoft, healthy}, {{"UCX_NET_DEVICES", "rxe0:1"}}).refusal);
  const KnownFaults both = Find(18, {kSoft, {"rxe1:1", false, true, true}});
  ASSERT_TRUE(both.refusal);
  EXPECT_NE(both.refusal->find("rxe0:1, rxe1:1"), std::string::npos);
}

TEST(KnownFaults, AVersionThatDiesWithAPeerIsNamed) {
  const RdmaPort port = {"mlx5_0:1", true, false, false};
  const KnownFaults found = Find(13, {port});
  ASSERT_EQ(found.warnings.size(), 1u);
  EXPECT_TRUE(found.warnings[0].starts_with("UCX 1.13.0 has RDMA ports (mlx5_0:1): ")) << found.warnings[0];
  EXPECT_FALSE(found.refusal);
  EXPECT_TRUE(Find(14, {port}).warnings.empty());
  EXPECT_TRUE(Find(13, {}).warnings.empty());
  EXPECT_TRUE(Find(13, {port}, {{"UCX_TLS", "tcp"}}).warnings.empty());
}

TEST(KnownFaults, PortsAreReadFromTheSystem) {
  const TempFolder machine;
  const auto write = [&](const std::string& device, const std::string& state) {
    const std::string port = "sys/class/infiniband/" + device + "/ports/1";
    machine.Write(port + "/state", state + "\n");
    machine.Write(port + "/link_layer", "Ethernet\n");
    machine.Write(port + "/gids/0", "fe80:0000:0000:0000:5054:00ff:fe09:0001\n");
    machine.Write(port + "/gid_attrs/ndevs/0", "eth0\n");
    machine.Write(port + "/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0007\n");
  };
  write("rxe0", "4: ACTIVE");
  write("rxe1", "1: DOWN");
  write("rxe2", "4: ACTIVE");
  EXPECT_TRUE(ReadRdmaPorts(machine.path()).empty()) << "no device file";
  for (const char* number : {"0", "1"}) {
    machine.Write("sys/class/infiniband_verbs/uverbs" + std::string(number) + "/ibdev",
                  "rxe" + std::string(number) + "\n");
    machine.Write("dev/infiniband/uverbs" + std::string(number), "");
  }
  auto ports = ReadRdmaPorts(machine.path());
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].name, "rxe0:1");
  EXPECT_TRUE(ports[0].ethernet);
  EXPECT_FALSE(ports[0].nvidia);
  EXPECT_FALSE(ports[0].ipv4) << "an address of another network namespace";
  machine.Write("sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1", "eth0\n");
  machine.Write("sys/class/infiniband/rxe0/device/vendor", "0x15b3\n");
  ports = ReadRdmaPorts(machine.path());
  EXPECT_TRUE(ports.at(0).ipv4);
  EXPECT_TRUE(ports[0].nvidia);
}

}  // namespace
}  // namespace ringmaster::fabric::ucx
