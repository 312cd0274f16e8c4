#include <sys/utsname.h>

#include "worker/devices/devices.h"

namespace ringmaster::devices {

Inventory Collect(const std::string& root) {
  Inventory found;
  utsname name = {};
  if (::uname(&name) == 0) {
    found.host = name.nodename;
    found.kernel = name.release;
  }
  found.cpu = ReadCpu(root);
  found.memory = ReadMemory(root);
  GpuAnswer gpus = AskGpus("libnvidia-ml.so.1", &found.notes);
  found.gpus = std::move(gpus.gpus);
  found.gpu_driver = std::move(gpus.driver);
  found.rdma = ReadRdma(root, &found.notes);
  found.transports = AskTransports("libuct.so.0", &found.notes);
  return found;
}

}  // namespace ringmaster::devices
