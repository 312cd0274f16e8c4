// SPDX-License-Identifier: Apache-2.0

// What this machine has for training: CPUs, memory, GPUs, RDMA devices, transports. `ringmaster devices`
// prints it, and workers compare it with what their job requests. Start here: Collect fills an Inventory,
// health.h checks it.
//
// Nothing here fails: what cannot be read is left out, with a note. Thread-safe. Collect may take a second,
// since it opens every transport.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "worker/inventory/topology.h"

namespace ringmaster::inventory {

struct Cpu {
  std::string model;
  int32_t logical = 0;                // of the machine
  int32_t usable = 0;                 // by this process
  double quota = 0;                   // CPU time that the cgroup grants, in CPUs; 0: no limit
  std::vector<std::string> features;  // by which our kernels are chosen: avx2, avx512f, ...
  bool operator==(const Cpu&) const = default;
};

struct Memory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  int64_t limit_bytes = 0;  // of the cgroup; 0: none
  int64_t shm_bytes = 0;    // size of /dev/shm
  bool operator==(const Memory&) const = default;
};

struct Gpu {
  int32_t index = 0;
  std::string name;
  std::string uuid;
  int64_t memory_bytes = 0;
  int64_t used_bytes = 0;  // memory in use by all processes
  std::string pci{};       // "0000:18:00.0"
  PciLocation location{};
  std::optional<int64_t> clock_mhz{};  // current clock of its processors; low when idle
  std::optional<int64_t> max_clock_mhz{};
  std::optional<int64_t> temperature_c{};
  std::optional<int64_t> slowdown_c{};     // from this temperature on it reduces its clocks
  std::vector<std::string> throttled{};    // why its clocks are reduced now: "thermal (hardware)"
  std::optional<bool> ecc{};               // ECC is on
  std::optional<int64_t> ecc_corrected{};  // memory errors since the driver was loaded
  std::optional<int64_t> ecc_uncorrected{};
  bool rows_pending = false;  // bad memory rows will be replaced at the next reset...
  bool rows_failed = false;   // ...or could not be replaced
  int32_t nvlinks_up = 0;
  int32_t nvlinks_down = 0;
  std::map<std::string, int32_t> nvlink_peers{};  // number of links by PCI address of the other end
  std::optional<bool> mig{};                      // partitioned into instances
  std::optional<int64_t> pcie_width{};
  std::optional<int64_t> max_pcie_width{};
  bool operator==(const Gpu&) const = default;
};

struct RdmaPort {
  std::string device;  // mlx5_0
  int32_t port = 0;
  std::string state;       // ACTIVE, DOWN, INIT, ...
  std::string rate;        // "100 Gb/sec (4X EDR)"
  std::string link_layer;  // InfiniBand | Ethernet
  std::string node_guid;
  std::string netdev;  // of RoCE, when known
  int32_t numa_node = -1;
  PciLocation location{};
  bool usable = false;  // this process has its file in /dev/infiniband
  int32_t gids = 0;     // addresses that other machines can reach
  bool active() const { return state == "ACTIVE"; }
  bool operator==(const RdmaPort&) const = default;
};

struct Transport {
  std::string name;    // tcp, posix, rc_mlx5
  std::string device;  // eth0, memory, mlx5_0:1
  std::string kind;    // net, shm, self, accelerator
  bool operator==(const Transport&) const = default;
};

// NCCL as this process would find it.
struct Nccl {
  std::string version;  // empty: not installed
  std::string plugin;   // NCCL_NET_PLUGIN
  bool plugin_found = false;
  bool operator==(const Nccl&) const = default;
};

// The permissions of this process that RDMA needs.
struct Privileges {
  int64_t memlock_bytes = -1;  // limit of memory it may pin; -1: none
  bool ipc_lock = false;       // CAP_IPC_LOCK: it may pin memory beyond the limit
  bool operator==(const Privileges&) const = default;
};

struct Inventory {
  std::string host;
  std::string kernel;
  Cpu cpu;
  Memory memory;
  std::vector<Gpu> gpus;
  std::string gpu_driver;
  std::vector<RdmaPort> rdma;
  std::vector<Transport> transports;
  Nccl nccl;
  Privileges privileges;
  bool gpu_files = false;  // /dev/nvidiactl exists: the container has a GPU, even if NVML reports none
  std::string gpu_direct;  // how NICs access GPU memory: nvidia_peermem, dma-buf; empty: not
  std::vector<std::string> interfaces;           // network interfaces
  std::map<std::string, std::string> variables;  // environment variables that select devices
  std::vector<std::string> notes;                // "GPUs: libnvidia-ml.so.1 is not installed"
  bool operator==(const Inventory&) const = default;
};

// `root` is a prefix of /proc, /sys and /dev: empty on a real machine, a folder in tests. GPUs, transports
// and NCCL are queried through their libraries, independent of `root`.
Inventory Collect(const std::string& root = "");

// The parts of Collect, for tests.
Cpu ReadCpu(const std::string& root);
// Returns how many threads this process can keep busy: the CPUs of its affinity, or fewer by its quota.
int32_t UsableCpus(const Cpu& cpu);
Memory ReadMemory(const std::string& root);
std::vector<RdmaPort> ReadRdma(const std::string& root, std::vector<std::string>* notes);
Privileges ReadPrivileges(const std::string& root);
std::string ReadGpuDirect(const std::string& root);
std::vector<std::string> ReadInterfaces(const std::string& root);
// `pci` is the address of a device: "0000:18:00.0".
PciLocation ReadPciLocation(const std::string& root, const std::string& pci);
void FillLocations(const std::string& root, std::vector<Gpu>* gpus);
Nccl QueryNccl(const std::string& library, const std::string& plugin);
struct GpuList {
  std::vector<Gpu> gpus;
  std::string driver;
};
GpuList QueryGpus(const std::string& library, std::vector<std::string>* notes);
std::vector<Transport> QueryTransports(const std::string& library, std::vector<std::string>* notes);

Json ToJson(const Inventory& inventory);
std::string ToJsonText(const Inventory& inventory);  // indented, newline at the end
std::string ToTable(const Inventory& inventory);

}  // namespace ringmaster::inventory
