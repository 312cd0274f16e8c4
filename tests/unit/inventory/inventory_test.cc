// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory/inventory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "base/check.h"
#include "base/file.h"
#include "tests/temp_folder.h"
#include "worker/inventory/device_selection.h"
#include "worker/inventory/gpu_monitor.h"
#include "worker/inventory/nvml.h"

namespace ringmaster::inventory {
namespace {

// A machine that consists of files.
class InventoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) { folder_.Write(path.substr(1), text); }
  bool Noted(const std::string& what) const {
    return std::any_of(notes_.begin(), notes_.end(),
                       [&](const std::string& note) { return note.find(what) != std::string::npos; });
  }
  void WritePort(const std::string& device, int port, const std::string& state, const std::string& layer) {
    const std::string folder = "/sys/class/infiniband/" + device;
    const std::string of_port = folder + "/ports/" + std::to_string(port);
    Write(of_port + "/state", state + "\n");
    Write(of_port + "/rate", "100 Gb/sec (4X EDR)\n");
    Write(of_port + "/link_layer", layer + "\n");
    Write(folder + "/node_guid", "b859:9f03:00aa:bbcc\n");
    Write(folder + "/device/numa_node", "1\n");
  }

  const TempFolder folder_;
  const std::string root_ = folder_.path();
  std::vector<std::string> notes_;
};

TEST_F(InventoryTest, CpuOfX86) {
  std::string info;
  for (int i = 0; i < 3; ++i) {
    info += "processor\t: " + std::to_string(i) + "\nmodel name\t: Some Processor @ 2 GHz\n" +
            "flags\t\t: fpu sse2 avx2 avx512f fma avx2048\n\n";
  }
  Write("/proc/cpuinfo", info);
  Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  const Cpu cpu = ReadCpu(root_);
  EXPECT_EQ(cpu.model, "Some Processor @ 2 GHz");
  EXPECT_EQ(cpu.logical, 3);
  EXPECT_GT(cpu.usable, 0);
  EXPECT_EQ(cpu.quota, 1.5);
  EXPECT_EQ(cpu.features, (std::vector<std::string>{"avx2", "fma", "avx512f"}));
}

TEST_F(InventoryTest, CpuOfArm) {
  Write("/proc/cpuinfo",
        "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd sve bf16\n"
        "CPU implementer\t: 0x41\n\nprocessor\t: 1\n");
  const Cpu cpu = ReadCpu(root_);
  EXPECT_EQ(cpu.logical, 2);
  EXPECT_EQ(cpu.features, (std::vector<std::string>{"asimd", "sve", "bf16"}));
}

TEST_F(InventoryTest, CpuQuotaInItsForms) {
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 0);
  std::filesystem::remove(root_ + "/sys/fs/cgroup/cpu.max");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 0);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 4);
}

// A scope of systemd, with a limit of its slice: no container mounts its group as the root.
TEST_F(InventoryTest, CpuQuotaOfTheGroupsAbove) {
  Write("/proc/self/cgroup", "0::/user.slice/run.scope\n");
  Write("/sys/fs/cgroup/user.slice/run.scope/cpu.max", "400000 100000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 4);
  Write("/sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 2.5);
  Cpu cpu;
  cpu.usable = 8;
  EXPECT_EQ(UsableCpus(cpu), 8);
  cpu.quota = 2.5;
  EXPECT_EQ(UsableCpus(cpu), 3);
  cpu.quota = 0.2;
  EXPECT_EQ(UsableCpus(cpu), 1);
  cpu.quota = 100;
  EXPECT_EQ(UsableCpus(cpu), 8);
}

TEST_F(InventoryTest, MemoryAndItsLimit) {
  Write("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:         1 kB\nMemAvailable:    8192 kB\n");
  EXPECT_EQ(ReadMemory(root_).total_bytes, 16 << 20);
  EXPECT_EQ(ReadMemory(root_).available_bytes, 8 << 20);
  EXPECT_EQ(ReadMemory(root_).limit_bytes, 0);
  Write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(ReadMemory(root_).limit_bytes, 0);
  Write("/sys/fs/cgroup/memory.max", "4194304\n");
  EXPECT_EQ(ReadMemory(root_).limit_bytes, 4 << 20);
  std::filesystem::remove(root_ + "/sys/fs/cgroup/memory.max");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(ReadMemory(root_).limit_bytes, 0) << "cgroup 1's value for no limit";
}

TEST_F(InventoryTest, RdmaPorts) {
  WritePort("mlx5_1", 1, "1: DOWN", "Ethernet");
  Write("/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "ens3f0\n");
  WritePort("mlx5_0", 1, "4: ACTIVE", "InfiniBand");
  WritePort("mlx5_0", 2, "2: INIT", "InfiniBand");
  Write("/dev/infiniband/uverbs0", "");
  const std::vector<RdmaPort> ports = ReadRdma(root_, &notes_);
  ASSERT_EQ(ports.size(), 3u);
  EXPECT_EQ(ports[0], (RdmaPort{"mlx5_0", 1, "ACTIVE", "100 Gb/sec (4X EDR)", "InfiniBand",
                                "b859:9f03:00aa:bbcc", "", 1}));
  EXPECT_TRUE(ports[0].active());
  EXPECT_EQ(ports[1].port, 2);
  EXPECT_EQ(ports[1].state, "INIT");
  EXPECT_FALSE(ports[1].active());
  EXPECT_EQ(ports[2].device, "mlx5_1");
  EXPECT_EQ(ports[2].netdev, "ens3f0");
  EXPECT_FALSE(ports[2].active());
  EXPECT_TRUE(notes_.empty());
}

TEST_F(InventoryTest, RoceDeviceWithoutGidTable) {
  WritePort("rocep1s0", 1, "4: ACTIVE", "Ethernet");
  std::filesystem::create_directories(root_ + "/sys/class/infiniband/rocep1s0/device/net/eth7");
  EXPECT_EQ(ReadRdma(root_, &notes_).at(0).netdev, "eth7");
}

TEST_F(InventoryTest, AVirtualDeviceHasNoPciLink) {
  WritePort("rxe0", 1, "4: ACTIVE", "Ethernet");
  std::filesystem::remove_all(root_ + "/sys/class/infiniband/rxe0/device");
  Write("/sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth0\n");
  Write("/sys/class/infiniband_verbs/uverbs2/ibdev", "rxe0\n");
  Write("/dev/infiniband/uverbs2", "");
  const RdmaPort port = ReadRdma(root_, &notes_).at(0);
  EXPECT_TRUE(port.usable);
  EXPECT_EQ(port.netdev, "eth0");
  EXPECT_EQ(port.location, PciLocation{});
}

TEST_F(InventoryTest, UnusableRdmaIsNoted) {
  EXPECT_TRUE(ReadRdma(root_, &notes_).empty());
  EXPECT_TRUE(Noted("no device"));
  WritePort("mlx5_0", 1, "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(ReadRdma(root_, &notes_).size(), 1u);
  EXPECT_TRUE(Noted("there is no /dev/infiniband"));
}

TEST_F(InventoryTest, AnIncompletePortIsReported) {
  std::filesystem::create_directories(root_ + "/sys/class/infiniband/mlx5_0/ports/1");
  const std::vector<RdmaPort> ports = ReadRdma(root_, &notes_);
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].state, "unknown");
  EXPECT_EQ(ports[0].numa_node, -1);
}

TEST_F(InventoryTest, GpusOfNvml) {
  const GpuList answer = QueryGpus(FAKE_NVML, &notes_);
  ASSERT_EQ(answer.gpus.size(), 1u);
  const Gpu& gpu = answer.gpus[0];
  EXPECT_EQ(gpu.name, "Test GPU");
  EXPECT_EQ(gpu.uuid, "GPU-0123");
  EXPECT_EQ(gpu.memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(gpu.used_bytes, int64_t{3} << 30);
  EXPECT_EQ(gpu.pci, "0000:1b:00.0") << "as sysfs writes it";
  EXPECT_EQ(gpu.clock_mhz, 1200);
  EXPECT_EQ(gpu.max_clock_mhz, 1980);
  EXPECT_EQ(gpu.temperature_c, 88);
  EXPECT_EQ(gpu.slowdown_c, 87);
  EXPECT_EQ(gpu.throttled, (std::vector<std::string>{"power cap", "thermal (hardware)"}))
      << "idling is not a fault";
  EXPECT_EQ(gpu.ecc, true);
  EXPECT_EQ(gpu.ecc_corrected, 40);
  EXPECT_EQ(gpu.ecc_uncorrected, 2);
  EXPECT_TRUE(gpu.rows_pending);
  EXPECT_FALSE(gpu.rows_failed);
  EXPECT_EQ(gpu.nvlinks_up, 17);
  EXPECT_EQ(gpu.nvlinks_down, 1);
  EXPECT_EQ(gpu.nvlink_peers, (std::map<std::string, int32_t>{{"0000:1c:00.0", 4}, {"0000:a0:00.0", 13}}));
  EXPECT_EQ(gpu.mig, std::nullopt);
  EXPECT_EQ(gpu.pcie_width, 8);
  EXPECT_EQ(gpu.max_pcie_width, 16);
  EXPECT_EQ(answer.driver, "550.1");
  EXPECT_TRUE(Noted("number 1 does not answer"));
}

TEST_F(InventoryTest, UnusableNvml) {
  EXPECT_TRUE(QueryGpus("libno-such-library.so", &notes_).gpus.empty());
  EXPECT_TRUE(Noted("is not installed"));
  EXPECT_TRUE(QueryGpus("libc.so.6", &notes_).gpus.empty());
  EXPECT_TRUE(Noted("lacks a required function"));
  ::setenv("FAKE_NVML_BROKEN", "1", 1);
  EXPECT_TRUE(QueryGpus(FAKE_NVML, &notes_).gpus.empty());
  ::unsetenv("FAKE_NVML_BROKEN");
  EXPECT_TRUE(Noted("error 9"));
}

TEST_F(InventoryTest, CriticalErrorsOfTheDriver) {
  const auto nvml = Nvml::Open(FAKE_NVML);
  ASSERT_TRUE(nvml.ok());
  EXPECT_FALSE((*nvml)->NextError(milliseconds(1)).has_value()) << "no GPU is watched yet";
  std::vector<Gpu> gpus(2);
  gpus[0].index = 1;
  EXPECT_FALSE((*nvml)->WatchErrors({gpus[0]})) << "it does not answer";
  EXPECT_FALSE((*nvml)->NextError(milliseconds(1)).has_value()) << "the error of a GPU that is not watched";
  gpus[1].uuid = "GPU-0123";
  ASSERT_TRUE((*nvml)->WatchErrors(gpus));
  const auto error = (*nvml)->NextError(milliseconds(1));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->xid, 79u);
  EXPECT_EQ(error->uuid, "GPU-0123");
  EXPECT_FALSE((*nvml)->NextError(milliseconds(1)).has_value());
  EXPECT_NE(DescribeXid(79).find("fallen off the bus"), std::string::npos);
  EXPECT_EQ(DescribeXid(9999), "XID 9999: see NVIDIA's list of XID errors");
}

// NVML reports a lost GPU immediately, at every call.
TEST_F(InventoryTest, WaitingForErrorsDoesNotSpin) {
  const auto nvml = Nvml::Open(FAKE_NVML);
  ASSERT_TRUE(nvml.ok());
  ASSERT_TRUE((*nvml)->WatchErrors((*nvml)->Gpus(&notes_)));
  ::setenv("FAKE_NVML_LOST", "1", 1);
  const Time begin = Now();
  EXPECT_FALSE((*nvml)->NextError(milliseconds(20)).has_value());
  EXPECT_GE(Now() - begin, milliseconds(20));
  ::unsetenv("FAKE_NVML_LOST");
}

TEST_F(InventoryTest, MonitorReportsTheGpusThenTheirFaults) {
  std::mutex mutex;
  std::condition_variable reported;
  std::vector<GpuReport> news;
  GpuMonitor::Options options;
  options.library = FAKE_NVML;
  options.root = root_;
  options.interval = milliseconds(1);
  const auto watch = GpuMonitor::Start(options, [&](const GpuReport& one) {
    const std::lock_guard lock(mutex);
    news.push_back(one);
    reported.notify_all();
  });
  ASSERT_TRUE(watch.ok()) << watch.error().message;
  std::unique_lock lock(mutex);
  EXPECT_EQ(news.at(0), (GpuReport{"Test GPU", "550.1", "", {}}));
  const auto has_xid = [&] {
    return std::ranges::any_of(news.back().faults,
                               [](const std::string& one) { return one.starts_with("GPU-0123: XID 79: "); });
  };
  ASSERT_TRUE(reported.wait_for(lock, seconds(60), has_xid));
  const auto& faults = news.back().faults;
  const auto has = [&](const std::string& head) {
    return std::ranges::any_of(faults, [&](const std::string& one) { return one.starts_with(head); });
  };
  EXPECT_TRUE(has("gpu 0: 2 memory errors"));
  EXPECT_TRUE(has("gpu 0: clocks are reduced: thermal (hardware)"));
  EXPECT_TRUE(has("gpu: number 1 does not answer"));
}

TEST_F(InventoryTest, ALostGpuIsReportedByItsOwnSlot) {
  std::mutex mutex;
  std::condition_variable reported;
  std::vector<std::string> faults;
  GpuMonitor::Options options;
  options.library = FAKE_NVML;
  options.root = root_;
  options.visible = "0";
  options.interval = milliseconds(1);
  const auto watch = GpuMonitor::Start(options, [&](const GpuReport& one) {
    const std::lock_guard lock(mutex);
    faults = one.faults;
    reported.notify_all();
  });
  ASSERT_TRUE(watch.ok());
  std::unique_lock lock(mutex);
  ASSERT_TRUE(reported.wait_for(lock, seconds(60), [&] { return !faults.empty(); }));
  for (const std::string& fault : faults)
    EXPECT_EQ(fault.find("does not answer"), std::string::npos) << "another slot reports it: " << fault;
}

TEST_F(InventoryTest, WithoutGpusThereIsNoMonitor) {
  GpuMonitor::Options options;
  options.library = "libno-such-nvml.so";
  const auto watch = GpuMonitor::Start(options, [](const GpuReport&) { FAIL(); });
  ASSERT_FALSE(watch.ok());
  EXPECT_EQ(watch.error().code, Code::kNotFound);
}

TEST(GpuMonitor, MonitorsTheGpusOfItsSlot) {
  std::vector<Gpu> gpus(3);
  for (int i = 0; i < 3; ++i) {
    gpus[static_cast<size_t>(i)].index = i;
    gpus[static_cast<size_t>(i)].uuid = "GPU-a" + std::to_string(i);
  }
  const auto indexes = [&](const std::string& list) {
    std::vector<int32_t> found;
    for (const Gpu& gpu : VisibleGpus(gpus, list)) found.push_back(gpu.index);
    return found;
  };
  EXPECT_EQ(indexes(""), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(indexes("2,0"), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(indexes("GPU-a1"), std::vector<int32_t>{1});
  EXPECT_EQ(indexes("GPU-b,GPU-a2"), std::vector<int32_t>{2});
  EXPECT_EQ(indexes("12"), std::vector<int32_t>{});
}

TEST(GpuFaults, ExpireWhenNotObserved) {
  DeviceFaults faults;
  const Time start = Time(seconds(1));
  faults.Observe("hot", start);
  faults.AddPermanent("XID 79");
  EXPECT_EQ(faults.Active(start), (std::vector<std::string>{"XID 79", "hot"}));
  faults.Observe("hot", start + seconds(30));
  faults.Observe("XID 79", start + seconds(30));
  EXPECT_EQ(faults.Active(start + seconds(89)).size(), 2u);
  EXPECT_EQ(faults.Active(start + seconds(90)), std::vector<std::string>{"XID 79"});
}

TEST_F(InventoryTest, LocationsOnTheBus) {
  const std::string path = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0";
  Write(path + "/numa_node", "1\n");
  std::filesystem::create_directories(root_ + "/sys/bus/pci/devices");
  std::filesystem::create_directory_symlink(root_ + path, root_ + "/sys/bus/pci/devices/0000:18:00.0");
  EXPECT_EQ(ReadPciLocation(root_, "0000:18:00.0"),
            (PciLocation{{"pci0000:16", "0000:16:01.0", "0000:17:00.0", "0000:18:00.0"}, 1}));
  EXPECT_EQ(ReadPciLocation(root_, "0000:99:00.0"), PciLocation{}) << "hidden";
  EXPECT_EQ(ReadPciLocation(root_, ""), PciLocation{});
}

TEST_F(InventoryTest, UsabilityOfAPort) {
  WritePort("mlx5_0", 1, "4: ACTIVE", "Ethernet");
  const std::string device = "/sys/class/infiniband/mlx5_0";
  const std::string port = device + "/ports/1";
  Write(port + "/gids/0", "fe80:0000:0000:0000:ba59:9fff:fe03:1234\n");
  Write(port + "/gid_attrs/ndevs/0", "eth1\n");
  Write(port + "/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0007\n");
  Write(port + "/gids/2",
        "0000:0000:0000:0000:0000:ffff:0a00:0008\n");  // of another network namespace: no device
  Write(port + "/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(ReadRdma(root_, &notes_).at(0).gids, 0)
      << "an address without a device in this namespace does not count";
  Write(port + "/gid_attrs/ndevs/1", "eth1\n");
  EXPECT_EQ(ReadRdma(root_, &notes_).at(0).gids, 1);
  Write("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_1\n");
  Write("/sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_0\n");
  Write("/dev/infiniband/uverbs0", "");
  EXPECT_FALSE(ReadRdma(root_, &notes_).at(0).usable) << "the file of another device";
  Write("/dev/infiniband/uverbs3", "");
  EXPECT_TRUE(ReadRdma(root_, &notes_).at(0).usable);
  WritePort("mlx5_1", 1, "4: ACTIVE", "InfiniBand");
  Write("/sys/class/infiniband/mlx5_1/ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:00aa:bbcc\n");
  EXPECT_EQ(ReadRdma(root_, &notes_).at(1).gids, 1)
      << "the first address of an InfiniBand port looks like this";
}

TEST(GpuOrder, TurnsGoRoundTheRing) {
  std::vector<Gpu> gpus(4);
  for (int i = 0; i < 4; ++i) {
    Gpu& gpu = gpus[static_cast<size_t>(i)];
    gpu.index = i;
    gpu.pci = "gpu" + std::to_string(i);
    gpu.location = PciLocation{{i % 2 == 0 ? "pci0" : "pci1", "port" + std::to_string(i), "end"}, i % 2};
  }
  EXPECT_EQ(IndicesInRingOrder(gpus), (std::vector<int32_t>{0, 1, 3, 2})) << "sockets alternate by number";
  for (const int i : {0, 1, 2, 3})
    gpus[static_cast<size_t>(i)].nvlink_peers["gpu" + std::to_string(3 - i)] = 4;
  EXPECT_EQ(IndicesInRingOrder(gpus), (std::vector<int32_t>{0, 2, 1, 3})) << "NVLink joins 0-3 and 1-2";
  EXPECT_EQ(GpuForTurn(gpus, "1"), "2");
  EXPECT_EQ(GpuForTurn(gpus, "7"), "3") << "more workers than GPUs share them";
  EXPECT_EQ(GpuForTurn(gpus, std::nullopt), std::nullopt) << "one trainer in its pod";
  EXPECT_EQ(GpuForTurn(gpus, ""), std::nullopt) << "a user has chosen";
  EXPECT_EQ(GpuForTurn(gpus, "-1"), std::nullopt);
  EXPECT_EQ(GpuForTurn({}, "1"), std::nullopt) << "no NVML";
  gpus[3].mig = true;
  EXPECT_EQ(GpuForTurn(gpus, "1"), std::nullopt) << "instances have other numbers";
}

// Two GPUs with a port next to each, and one more port that does not work.
TEST(SelectNics, OfASlotAndOfItsPod) {
  const auto at = [](const std::string& sw) { return PciLocation{{"pci0", "port", sw, "end"}, 0}; };
  std::vector<Gpu> gpus(2);
  std::vector<RdmaPort> ports(3);
  for (int i = 0; i < 3; ++i) {
    RdmaPort& port = ports[static_cast<size_t>(i)];
    port.device = "mlx5_" + std::to_string(i);
    port.port = 1;
    port.state = i == 2 ? "DOWN" : "ACTIVE";
    port.usable = true;
    port.location = at(i == 0 ? "b" : "a");
    if (i == 2) continue;
    gpus[static_cast<size_t>(i)].index = i;
    gpus[static_cast<size_t>(i)].location = at(i == 0 ? "a" : "b");
  }
  EXPECT_EQ(SelectNics(gpus, "0", ports), (NicSelection{{"mlx5_1:1"}, {"mlx5_0:1", "mlx5_1:1"}}));
  EXPECT_EQ(SelectNics(gpus, "1", ports), (NicSelection{{"mlx5_0:1"}, {"mlx5_0:1", "mlx5_1:1"}}));
  EXPECT_EQ(SelectNics(gpus, "", ports).own.size(), 2u);
  EXPECT_EQ(SelectNics(gpus, "0", {}), NicSelection{});
  gpus[0].location = {};
  EXPECT_EQ(SelectNics(gpus, "1", ports), NicSelection{}) << "an unknown distance is not guessed";

  using Settings = std::vector<std::pair<std::string, std::string>>;
  const NicSelection nics = {{"mlx5_1:1"}, {"mlx5_0:1", "mlx5_1:1"}};
  const auto unset = [](const std::string&) { return std::optional<std::string>(); };
  EXPECT_EQ(NicEnvironment(nics, {"eth0", "lo"}, unset),
            (Settings{{"UCX_NET_DEVICES", "mlx5_1:1,eth0"}, {"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"}}));
  const auto ucx_set = [](const std::string& name) {
    return name == "UCX_NET_DEVICES" ? std::optional<std::string>("all") : std::nullopt;
  };
  EXPECT_EQ(NicEnvironment(nics, {}, ucx_set), (Settings{{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"}}));
  EXPECT_EQ(NicEnvironment({}, {"eth0"}, unset), Settings{});
}

TEST_F(InventoryTest, TheNicOfThisMachine) {
  const std::string sw = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
  std::filesystem::create_directories(root_ + "/sys/bus/pci/devices");
  for (const std::string pci : {"0000:1b:00.0", "0000:1c:00.0"}) {
    Write(sw + "/" + pci + "/numa_node", "1\n");
    std::filesystem::create_directory_symlink(root_ + sw + "/" + pci, root_ + "/sys/bus/pci/devices/" + pci);
  }
  const std::string device = "/sys/class/infiniband/mlx5_7";
  std::filesystem::create_directories(root_ + device);
  std::filesystem::create_directory_symlink(root_ + sw + "/0000:1c:00.0", root_ + device + "/device");
  Write("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_7\n");
  Write("/dev/infiniband/uverbs0", "");
  WritePort("mlx5_7", 1, "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(SelectNics(FindGpus(FAKE_NVML, root_), "", ReadRdma(root_, &notes_)),
            (NicSelection{{"mlx5_7:1"}, {"mlx5_7:1"}}));
  EXPECT_TRUE(FindGpus("libno-such-nvml.so", root_).empty());
}

TEST_F(InventoryTest, PrivilegesAndGpuDirect) {
  Write("/proc/self/status", "Name:\tx\nCapEff:\t00000000a80425fb\n");
  EXPECT_FALSE(ReadPrivileges(root_).ipc_lock);
  Write("/proc/self/status", "Name:\tx\nCapEff:\t00000000a80465fb\n");
  EXPECT_TRUE(ReadPrivileges(root_).ipc_lock);
  EXPECT_EQ(ReadGpuDirect(root_), "");
  Write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95\n");
  EXPECT_EQ(ReadGpuDirect(root_), "dma-buf");
  Write("/sys/module/nvidia_peermem/version", "580.95\n");
  EXPECT_EQ(ReadGpuDirect(root_), "nvidia_peermem");
}

TEST_F(InventoryTest, NcclAndItsPlugin) {
  EXPECT_EQ(QueryNccl("libno-such-nccl.so", ""), Nccl{});
  EXPECT_FALSE(QueryNccl("libno-such-nccl.so", "no-such-plugin").plugin_found);
  EXPECT_TRUE(QueryNccl("libno-such-nccl.so", FAKE_NVML).plugin_found) << "any library that can be loaded";
  EXPECT_EQ(QueryNccl("libc.so.6", "").version, "");
}

TEST_F(InventoryTest, TransportsAlwaysHaveTcpAndSelf) {
  const std::vector<Transport> transports = QueryTransports("libuct.so.0", &notes_);
  const auto has = [&](const std::string& name, const std::string& kind) {
    return std::any_of(transports.begin(), transports.end(),
                       [&](const Transport& one) { return one.name == name && one.kind == kind; });
  };
  EXPECT_TRUE(has("tcp", "net"));
  EXPECT_TRUE(has("self", "self"));
}

TEST_F(InventoryTest, WithoutUcxThereIsANoteAndNoTransport) {
  EXPECT_TRUE(QueryTransports("libuct-not-there.so", &notes_).empty());
  EXPECT_TRUE(Noted("libuct-not-there.so is not installed"));
  EXPECT_TRUE(QueryTransports("libc.so.6", &notes_).empty());
  EXPECT_TRUE(Noted("libc.so.6 lacks uct_"));
}

TEST_F(InventoryTest, TableAndJsonAgree) {
  Inventory inventory;
  inventory.host = "node-1";
  inventory.kernel = "6.1";
  inventory.cpu = {"Some Processor", 8, 4, 1.5, {"avx2"}};
  inventory.memory = {int64_t{16} << 30, int64_t{8} << 30, int64_t{4} << 30, 64 << 20};
  inventory.gpus = {{0, "Test GPU", "GPU-0123", int64_t{80} << 30}};
  Gpu& gpu = inventory.gpus[0];
  gpu.pci = "0000:18:00.0";
  gpu.location.numa_node = 1;
  gpu.temperature_c = 41;
  gpu.clock_mhz = 345;
  gpu.max_clock_mhz = 1980;
  gpu.throttled = {"thermal (hardware)"};
  gpu.nvlinks_up = 17;
  gpu.nvlinks_down = 1;
  gpu.ecc = true;
  gpu.ecc_uncorrected = 2;
  inventory.gpu_driver = "550.1";
  inventory.rdma = {{"mlx5_0", 1, "ACTIVE", "100 Gb/sec", "InfiniBand", "guid", "", 1}};
  inventory.transports = {{"tcp", "lo", "net"}, {"tcp", "eth0", "net"}, {"posix", "memory", "shm"}};
  inventory.notes = {"a note"};
  EXPECT_EQ(
      ToTable(inventory),
      "host        node-1 (Linux 6.1)\n"
      "cpu         Some Processor: 4 of 8 usable, limited to 1.5\n"
      "            avx2\n"
      "memory      16.0 GiB (8.0 GiB available, limited to 4.0 GiB), /dev/shm 64.0 MiB\n"
      "gpu 0       Test GPU, 80.0 GiB, GPU-0123 (driver 550.1)\n"
      "            0000:18:00.0, NUMA node 1, 41 C, 345 of 1980 MHz, clocks reduced: thermal (hardware), "
      "17 of 18 NVLinks up, ECC errors 2\n"
      "rdma        mlx5_0:1 ACTIVE, InfiniBand, 100 Gb/sec, NUMA node 1, not in this container\n"
      "transport   tcp         net           lo eth0\n"
      "transport   posix       shm           memory\n"
      "note        a note\n");
  const auto json = ParseJson(ToJsonText(inventory));
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json.value()["cpu"]["quota"], 1.5);
  EXPECT_EQ(json.value()["rdma"][0]["active"], true);
  EXPECT_EQ(json.value()["gpus"][0]["memoryBytes"], int64_t{80} << 30);
  EXPECT_EQ(json.value()["gpus"][0]["temperatureC"], 41);
  EXPECT_TRUE(json.value()["gpus"][0]["mig"].is_null()) << "not reported";
  EXPECT_EQ(json.value()["transports"].size(), 3u);
  EXPECT_EQ(json.value()["notes"][0], "a note");
}

TEST_F(InventoryTest, ThisMachine) {
  const Inventory here = Collect();
  EXPECT_GT(here.cpu.logical, 0);
  EXPECT_NE(here.cpu.model, "unknown");
  EXPECT_GT(here.memory.total_bytes, 0);
  EXPECT_GT(here.memory.shm_bytes, 0);
  // An empty folder gives an empty inventory.
  EXPECT_EQ(Collect(root_).memory.total_bytes, 0);
}

}  // namespace
}  // namespace ringmaster::inventory
