// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/health.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace ringmaster::inventory {
namespace {

PciLocation LocationAt(int socket, int root, int bus) {
  const std::string r = "pci" + std::to_string(root);
  return {{r, r + ".1", r + ".sw", "dev" + std::to_string(bus)}, socket};
}

// Two healthy GPUs, each with a NIC below the same switch.
Inventory Good() {
  Inventory one;
  one.memory.shm_bytes = int64_t{32} << 30;
  for (int i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.name = "Test GPU";
    gpu.location = LocationAt(i, i, 1);
    gpu.ecc = true;
    gpu.ecc_uncorrected = 0;
    gpu.nvlinks_up = 18;
    gpu.temperature_c = 40;
    gpu.slowdown_c = 87;
    gpu.throttled = {"power cap"};
    gpu.pcie_width = gpu.max_pcie_width = 16;
    one.gpus.push_back(gpu);
    RdmaPort port;
    port.device = "mlx5_" + std::to_string(i);
    port.port = 1;
    port.state = "ACTIVE";
    port.rate = "400 Gb/sec (4X NDR)";
    port.link_layer = "InfiniBand";
    port.location = LocationAt(i, i, 2);
    port.usable = true;
    port.gids = 1;
    one.rdma.push_back(port);
  }
  one.transports = {
      {"rc_mlx5", "mlx5_0:1", "net"}, {"cuda_copy", "cuda", "accelerator"}, {"tcp", "eth0", "net"}};
  one.nccl.version = "2.28.9";
  one.privileges = {-1, true};
  one.gpu_direct = "dma-buf";
  one.interfaces = {"eth0", "lo"};
  one.gpu_files = true;
  one.gpu_driver = "580.95.05";
  return one;
}

TEST(Health, AHealthyMachine) {
  const std::vector<Finding> findings = CheckHealth(Good());
  for (const Finding& one : findings) {
    EXPECT_EQ(one.severity, Severity::kOk) << one.subject << ": " << one.what;
    EXPECT_TRUE(one.remedy.empty());
  }
  EXPECT_TRUE(Healthy(findings));
  EXPECT_GE(findings.size(), 8u);
}

TEST(Health, AMachineWithoutGpusIsHealthy) {
  Inventory plain;
  plain.memory.shm_bytes = 64 << 20;
  plain.notes = {"GPUs: libnvidia-ml.so.1 is not installed"};
  const std::vector<Finding> findings = CheckHealth(plain);
  EXPECT_TRUE(Healthy(findings));
  EXPECT_TRUE(
      std::ranges::none_of(findings, [](const Finding& one) { return one.severity != Severity::kOk; }));
}

struct Case {
  const char* name;
  std::function<void(Inventory&)> break_it;
  Severity severity;
  const char* subject;
  const char* what;
  const char* remedy;
};

class HealthOf : public ::testing::TestWithParam<Case> {};

// Each problem alone gives exactly one finding, with its remedy.
TEST_P(HealthOf, OneProblem) {
  Inventory inventory = Good();
  GetParam().break_it(inventory);
  const std::vector<Finding> findings = CheckHealth(inventory);
  int found = 0;
  for (const Finding& one : findings) {
    if (one.severity == Severity::kOk) continue;
    ++found;
    EXPECT_EQ(SeverityName(one.severity), std::string(SeverityName(GetParam().severity)));
    EXPECT_EQ(one.subject, GetParam().subject);
    EXPECT_NE(one.what.find(GetParam().what), std::string::npos) << one.what;
    EXPECT_NE(one.remedy.find(GetParam().remedy), std::string::npos) << one.remedy;
  }
  EXPECT_EQ(found, 1) << HealthTable(findings);
  EXPECT_EQ(Healthy(findings), GetParam().severity != Severity::kFailure);
}

const Case kCases[] = {
    {"lost", [](Inventory& i) { i.notes = {"GPUs: number 1 does not answer"}; }, Severity::kFailure, "gpu",
     "number 1 does not answer", "dmesg"},
    {"driver", [](Inventory& i) { i.gpu_driver = "550.144.03"; }, Severity::kWarning, "gpu driver",
     "550.144.03 is too old", "580"},
    {"rows_failed", [](Inventory& i) { i.gpus[1].rows_failed = true; }, Severity::kFailure, "gpu 1",
     "spare rows", "replace the GPU"},
    {"ecc", [](Inventory& i) { i.gpus[0].ecc_uncorrected = 3; }, Severity::kFailure, "gpu 0",
     "3 memory errors", "reset"},
    {"rows_pending", [](Inventory& i) { i.gpus[0].rows_pending = true; }, Severity::kWarning, "gpu 0",
     "wait to be replaced", "reset"},
    {"nvlink", [](Inventory& i) { i.gpus[0].nvlinks_down = 2; }, Severity::kFailure, "gpu 0",
     "2 of 20 NVLinks are down", "nvlink -e"},
    {"hot", [](Inventory& i) { i.gpus[0].throttled = {"thermal (hardware)"}; }, Severity::kWarning, "gpu 0",
     "reduced: thermal", "cooling"},
    {"brake", [](Inventory& i) { i.gpus[0].throttled = {"external power brake"}; }, Severity::kWarning,
     "gpu 0", "power brake", "power supplies"},
    {"temperature", [](Inventory& i) { i.gpus[0].temperature_c = 87; }, Severity::kWarning, "gpu 0", "87 C",
     "cooling"},
    {"lanes", [](Inventory& i) { i.gpus[0].pcie_width = 8; }, Severity::kWarning, "gpu 0",
     "8 of 16 PCIe lanes", "reseat"},
    {"ecc_off", [](Inventory& i) { i.gpus[0].ecc = false; }, Severity::kWarning, "gpu 0", "ECC is off",
     "-e 1"},
    {"mig", [](Inventory& i) { i.gpus[0].mig = true; }, Severity::kWarning, "gpu 0", "MIG", "-mig 0"},
    {"driver_library",
     [](Inventory& i) {
       i.gpus.clear();
       i.transports.erase(i.transports.begin() + 1);
     },
     Severity::kFailure, "gpu", "driver's library", "runtimeClassName"},
    {"port_down",
     [](Inventory& i) {
       i.rdma[1].state = "DOWN";
       i.gpus.pop_back();
     },
     Severity::kFailure, "rdma mlx5_1:1", "DOWN", "cable"},
    {"port_init",
     [](Inventory& i) {
       i.rdma[1].state = "INIT";
       i.gpus.pop_back();
     },
     Severity::kFailure, "rdma mlx5_1:1", "INIT", "PKey"},
    {"roce_without_address",
     [](Inventory& i) {
       i.rdma[1].link_layer = "Ethernet";
       i.rdma[1].gids = 0;
       i.gpus.pop_back();
     },
     Severity::kFailure, "rdma mlx5_1:1", "no address", "Multus"},
    {"not_given",
     [](Inventory& i) {
       i.rdma.pop_back();
       i.rdma[0].usable = false;
       i.gpus.pop_back();
     },
     Severity::kWarning, "rdma mlx5_0:1", "/dev/infiniband", "spec.network.rdma.resource"},
    {"memlock",
     [](Inventory& i) {
       i.privileges = {64 << 10, false};
     },
     Severity::kFailure, "rdma", "pin 64 KiB", "IPC_LOCK"},
    {"rates", [](Inventory& i) { i.rdma[1].rate = "100 Gb/sec (4X EDR)"; }, Severity::kWarning, "rdma",
     "different rates", "cable"},
    {"few_cards",
     [](Inventory& i) {
       i.rdma.pop_back();
       i.gpus[1].location = i.gpus[0].location;
     },
     Severity::kWarning, "rdma", "1 ports for 2 GPUs", "as many NICs"},
    {"filter", [](Inventory& i) { i.variables["NCCL_IB_HCA"] = "=mlx5_0"; }, Severity::kWarning,
     "rdma mlx5_1:1", "excludes it", "unset the variable"},
    {"ib_disabled", [](Inventory& i) { i.variables["NCCL_IB_DISABLE"] = "1"; }, Severity::kFailure, "rdma",
     "NCCL_IB_DISABLE", "unset"},
    {"ucx_ib", [](Inventory& i) { i.transports.erase(i.transports.begin()); }, Severity::kFailure, "ucx",
     "libuct_ib", "rdma-core"},
    {"ucx_tls", [](Inventory& i) { i.variables["UCX_TLS"] = "tcp,sm"; }, Severity::kFailure, "ucx",
     "over TCP", "MPI"},
    {"no_nccl", [](Inventory& i) { i.nccl.version.clear(); }, Severity::kWarning, "nccl", "not installed",
     "install NCCL"},
    {"plugin", [](Inventory& i) { i.nccl.plugin = "gib"; }, Severity::kFailure, "nccl", "plugin gib",
     "LD_LIBRARY_PATH"},
    {"interface", [](Inventory& i) { i.variables["NCCL_SOCKET_IFNAME"] = "ens5"; }, Severity::kFailure,
     "nccl", "none of the interfaces eth0, lo", "eth0"},
    {"gpu_direct", [](Inventory& i) { i.gpu_direct.clear(); }, Severity::kWarning, "gpudirect",
     "through the host", "nvidia_peermem"},
    {"far", [](Inventory& i) { i.gpus[1].location = LocationAt(2, 9, 1); }, Severity::kWarning, "gpudirect",
     "different sockets", "topology manager"},
    {"hidden", [](Inventory& i) { i.gpus[1].location = {}; }, Severity::kWarning, "gpudirect", "is unknown",
     "NCCL_TOPO_FILE"},
    {"shm", [](Inventory& i) { i.memory.shm_bytes = 64 << 20; }, Severity::kWarning, "shm", "64 MiB",
     "emptyDir"},
};

INSTANTIATE_TEST_SUITE_P(Each, HealthOf, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Health, AFilterThatSelectsNothing) {
  Inventory inventory = Good();
  inventory.variables["NCCL_IB_HCA"] = "mlx4";
  const std::vector<Finding> findings = CheckHealth(inventory);
  EXPECT_FALSE(Healthy(findings));
  inventory.variables["NCCL_IB_HCA"] = "^=mlx5_9";
  EXPECT_TRUE(Healthy(CheckHealth(inventory)));
  inventory.variables["NCCL_IB_HCA"] = "mlx5_0:1,mlx5_1:1";
  EXPECT_TRUE(Healthy(CheckHealth(inventory)));
  inventory.variables["NCCL_IB_HCA"] = "mlx5_0:2";
  EXPECT_FALSE(Healthy(CheckHealth(inventory)));
}

TEST(Health, TableAndJson) {
  const std::vector<Finding> findings = {
      {Severity::kOk, "gpu 0", "Test GPU", ""},
      {Severity::kFailure, "rdma mlx5_0:1", "its state is DOWN", "look at the cable"}};
  EXPECT_EQ(HealthTable(findings),
            "ok    gpu 0            Test GPU\n"
            "FAIL  rdma mlx5_0:1    its state is DOWN\n"
            "                       -> look at the cable\n");
  const auto json = ParseJson(HealthJson(findings));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json.value()["healthy"], false);
  EXPECT_EQ(json.value()["findings"][1]["remedy"], "look at the cable");
}

}  // namespace
}  // namespace ringmaster::inventory
