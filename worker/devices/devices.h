// What this machine has for training: CPUs, memory, GPUs, RDMA devices, transports. For people (`devices`),
// and for comparing with what a job asked for. Nothing here fails: what cannot be read is left out, with a
// note.
//
// Collect may take a second (it opens every transport); any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace ringmaster::devices {

struct Cpu {
  std::string model;
  int32_t logical = 0;                // of the machine
  int32_t usable = 0;                 // that this process may run on
  double quota = 0;                   // CPUs' worth of time that the cgroup grants; 0: no limit
  std::vector<std::string> features;  // those that kernels here choose by: avx2, avx512f, ...
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
  bool active() const { return state == "ACTIVE"; }
  bool operator==(const RdmaPort&) const = default;
};

struct Transport {
  std::string name;    // tcp, posix, rc_mlx5
  std::string device;  // eth0, memory, mlx5_0:1
  std::string kind;    // net, shm, self, accelerator
  bool operator==(const Transport&) const = default;
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
  std::vector<std::string> notes;  // "GPUs: libnvidia-ml.so.1 is not installed"
  bool operator==(const Inventory&) const = default;
};

// `root` stands before /proc, /sys and /dev: empty on a real machine, a folder in tests. GPUs and transports
// are asked of their libraries and do not depend on it.
Inventory Collect(const std::string& root = "");

// The parts of Collect, for tests.
Cpu ReadCpu(const std::string& root);
Memory ReadMemory(const std::string& root);
std::vector<RdmaPort> ReadRdma(const std::string& root, std::vector<std::string>* notes);
struct GpuAnswer {
  std::vector<Gpu> gpus;
  std::string driver;
};
GpuAnswer AskGpus(const std::string& library, std::vector<std::string>* notes);
std::vector<Transport> AskTransports(const std::string& library, std::vector<std::string>* notes);

Json ToJson(const Inventory& inventory);
std::string ToJsonText(const Inventory& inventory);  // indented, newline at the end
std::string ToTable(const Inventory& inventory);

}  // namespace ringmaster::devices
