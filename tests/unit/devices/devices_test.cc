#include "worker/devices/devices.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace ringmaster::devices {
namespace {

// A machine made of files.
class DevicesTest : public ::testing::Test {
 protected:
  DevicesTest() {
    std::string name = std::filesystem::temp_directory_path() / "ringmaster-devices-XXXXXX";
    CHECK(::mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~DevicesTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    CHECK(WriteFileAtomic(root_ + path, text).ok());
  }
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

  std::string root_;
  std::vector<std::string> notes_;
};

TEST_F(DevicesTest, CpuOfX86) {
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

TEST_F(DevicesTest, CpuOfArm) {
  Write("/proc/cpuinfo",
        "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd sve bf16\n"
        "CPU implementer\t: 0x41\n\nprocessor\t: 1\n");
  const Cpu cpu = ReadCpu(root_);
  EXPECT_EQ(cpu.logical, 2);
  EXPECT_EQ(cpu.features, (std::vector<std::string>{"asimd", "sve", "bf16"}));
}

TEST_F(DevicesTest, CpuQuotaInItsForms) {
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 0);
  std::filesystem::remove(root_ + "/sys/fs/cgroup/cpu.max");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 0);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(ReadCpu(root_).quota, 4);
}

TEST_F(DevicesTest, MemoryAndItsLimit) {
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
  EXPECT_EQ(ReadMemory(root_).limit_bytes, 0) << "cgroup 1's word for none";
}

TEST_F(DevicesTest, RdmaPorts) {
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

TEST_F(DevicesTest, RoceDeviceIsFoundTheOldWay) {
  WritePort("rocep1s0", 1, "4: ACTIVE", "Ethernet");
  std::filesystem::create_directories(root_ + "/sys/class/infiniband/rocep1s0/device/net/eth7");
  EXPECT_EQ(ReadRdma(root_, &notes_).at(0).netdev, "eth7");
}

TEST_F(DevicesTest, RdmaThatCannotBeUsedIsNoted) {
  EXPECT_TRUE(ReadRdma(root_, &notes_).empty());
  EXPECT_TRUE(Noted("no device"));
  WritePort("mlx5_0", 1, "4: ACTIVE", "InfiniBand");
  EXPECT_EQ(ReadRdma(root_, &notes_).size(), 1u);
  EXPECT_TRUE(Noted("/dev/infiniband is not"));
}

TEST_F(DevicesTest, HalfAPortIsNoTrouble) {
  std::filesystem::create_directories(root_ + "/sys/class/infiniband/mlx5_0/ports/1");
  const std::vector<RdmaPort> ports = ReadRdma(root_, &notes_);
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].state, "unknown");
  EXPECT_EQ(ports[0].numa_node, -1);
}

TEST_F(DevicesTest, GpusThroughTheirLibrary) {
  const GpuAnswer answer = AskGpus(FAKE_NVML, &notes_);
  ASSERT_EQ(answer.gpus.size(), 1u);
  EXPECT_EQ(answer.gpus[0], (Gpu{0, "Test GPU", "GPU-0123", int64_t{80} << 30}));
  EXPECT_EQ(answer.driver, "550.1");
  EXPECT_TRUE(Noted("number 1 does not answer"));
}

TEST_F(DevicesTest, GpusThatCannotBeAsked) {
  EXPECT_TRUE(AskGpus("libno-such-library.so", &notes_).gpus.empty());
  EXPECT_TRUE(Noted("is not installed"));
  EXPECT_TRUE(AskGpus("libc.so.6", &notes_).gpus.empty());
  EXPECT_TRUE(Noted("lacks a function"));
  ::setenv("FAKE_NVML_BROKEN", "1", 1);
  EXPECT_TRUE(AskGpus(FAKE_NVML, &notes_).gpus.empty());
  ::unsetenv("FAKE_NVML_BROKEN");
  EXPECT_TRUE(Noted("error 9"));
}

TEST_F(DevicesTest, TransportsAlwaysHaveTcpAndSelf) {
  const std::vector<Transport> transports = AskTransports("libuct.so.0", &notes_);
  const auto has = [&](const std::string& name, const std::string& kind) {
    return std::any_of(transports.begin(), transports.end(),
                       [&](const Transport& one) { return one.name == name && one.kind == kind; });
  };
  EXPECT_TRUE(has("tcp", "net"));
  EXPECT_TRUE(has("self", "self"));
}

TEST_F(DevicesTest, WithoutUcxThereIsANoteAndNoTransport) {
  EXPECT_TRUE(AskTransports("libuct-not-there.so", &notes_).empty());
  EXPECT_TRUE(Noted("libuct-not-there.so is not installed"));
  EXPECT_TRUE(AskTransports("libc.so.6", &notes_).empty());
  EXPECT_TRUE(Noted("libc.so.6 lacks uct_"));
}

TEST_F(DevicesTest, TheTableAndTheJsonSayTheSame) {
  Inventory inventory;
  inventory.host = "node-1";
  inventory.kernel = "6.1";
  inventory.cpu = {"Some Processor", 8, 4, 1.5, {"avx2"}};
  inventory.memory = {int64_t{16} << 30, int64_t{8} << 30, int64_t{4} << 30, 64 << 20};
  inventory.gpus = {{0, "Test GPU", "GPU-0123", int64_t{80} << 30}};
  inventory.gpu_driver = "550.1";
  inventory.rdma = {{"mlx5_0", 1, "ACTIVE", "100 Gb/sec", "InfiniBand", "guid", "", 1}};
  inventory.transports = {{"tcp", "lo", "net"}, {"tcp", "eth0", "net"}, {"posix", "memory", "shm"}};
  inventory.notes = {"a note"};
  EXPECT_EQ(ToTable(inventory),
            "host        node-1 (Linux 6.1)\n"
            "cpu         Some Processor: 4 of 8 usable, limited to 1.5\n"
            "            avx2\n"
            "memory      16.0 GiB (8.0 GiB available, limited to 4.0 GiB), /dev/shm 64.0 MiB\n"
            "gpu 0       Test GPU, 80.0 GiB, GPU-0123 (driver 550.1)\n"
            "rdma        mlx5_0:1 ACTIVE, InfiniBand, 100 Gb/sec, NUMA node 1\n"
            "transport   tcp         net           lo eth0\n"
            "transport   posix       shm           memory\n"
            "note        a note\n");
  const auto json = ParseJson(ToJsonText(inventory));
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json.value()["cpu"]["quota"], 1.5);
  EXPECT_EQ(json.value()["rdma"][0]["active"], true);
  EXPECT_EQ(json.value()["gpus"][0]["memoryBytes"], int64_t{80} << 30);
  EXPECT_EQ(json.value()["transports"].size(), 3u);
  EXPECT_EQ(json.value()["notes"][0], "a note");
}

TEST_F(DevicesTest, ThisMachineHasSomething) {
  const Inventory here = Collect();
  EXPECT_GT(here.cpu.logical, 0);
  EXPECT_NE(here.cpu.model, "unknown");
  EXPECT_GT(here.memory.total_bytes, 0);
  EXPECT_GT(here.memory.shm_bytes, 0);
  // Of an empty folder nothing can be said, and nothing breaks.
  EXPECT_EQ(Collect(root_).memory.total_bytes, 0);
}

}  // namespace
}  // namespace ringmaster::devices
