// SPDX-License-Identifier: Apache-2.0

#include <stdlib.h>
#include <sys/utsname.h>

#include <array>

#include "worker/inventory/inventory.h"
#include "worker/inventory/text_file.h"

namespace ringmaster::inventory {
namespace {

// The variables that decide which devices carry gradients.
constexpr std::array kVariables = {
    "CUDA_VISIBLE_DEVICES", "NCCL_IB_DISABLE",    "NCCL_IB_HCA", "NCCL_NET",
    "NCCL_NET_PLUGIN",      "NCCL_SOCKET_IFNAME", "UCX_TLS",     "UCX_NET_DEVICES"};

}  // namespace

Inventory Collect(const std::string& root) {
  Inventory found;
  utsname about = {};
  if (::uname(&about) == 0) {
    found.host = about.nodename;
    found.kernel = about.release;
  }
  found.cpu = ReadCpu(root);
  found.memory = ReadMemory(root);
  GpuList gpus = QueryGpus("libnvidia-ml.so.1", &found.notes);
  found.gpus = std::move(gpus.gpus);
  found.gpu_driver = std::move(gpus.driver);
  FillLocations(root, &found.gpus);
  found.rdma = ReadRdma(root, &found.notes);
  found.transports = QueryTransports("libuct.so.0", &found.notes);
  for (const char* name : kVariables)
    if (const char* value = ::getenv(name); value != nullptr) found.variables[name] = value;
  found.nccl = QueryNccl(
      "libnccl.so.2", found.variables.contains("NCCL_NET_PLUGIN") ? found.variables["NCCL_NET_PLUGIN"] : "");
  found.privileges = ReadPrivileges(root);
  found.gpu_direct = ReadGpuDirect(root);
  found.gpu_files = Exists(root + "/dev/nvidiactl");
  found.interfaces = ReadInterfaces(root);
  return found;
}

}  // namespace ringmaster::inventory
