// NVIDIA's management library, loaded when it is there: no build or machine needs it. The few declarations
// used are its stable, documented C interface.
#include <dlfcn.h>
#include <string.h>

#include <array>
#include <memory>

#include "worker/devices/devices.h"

namespace ringmaster::devices {
namespace {

using NvmlDevice = struct NvmlDeviceOpaque*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct CloseLibrary {
  void operator()(void* handle) const { ::dlclose(handle); }
};

class Nvml {
 public:
  explicit Nvml(const std::string& library) : handle_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {}

  bool loaded() const { return handle_ != nullptr; }
  // nullptr when this version of the library lacks it.
  template <class Function>
  Function* Find(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_.get(), name));
  }

 private:
  std::unique_ptr<void, CloseLibrary> handle_;
};

std::string TextOf(const std::array<char, 128>& buffer) {
  return {buffer.data(), ::strnlen(buffer.data(), buffer.size())};
}

}  // namespace

GpuAnswer AskGpus(const std::string& library, std::vector<std::string>* notes) {
  const Nvml nvml(library);
  if (!nvml.loaded()) {
    notes->push_back("GPUs: " + library + " is not installed");
    return {};
  }
  const auto init = nvml.Find<int()>("nvmlInit_v2");
  const auto shutdown = nvml.Find<int()>("nvmlShutdown");
  const auto count = nvml.Find<int(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto by_index = nvml.Find<int(unsigned, NvmlDevice*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto name = nvml.Find<int(NvmlDevice, char*, unsigned)>("nvmlDeviceGetName");
  const auto uuid = nvml.Find<int(NvmlDevice, char*, unsigned)>("nvmlDeviceGetUUID");
  const auto memory = nvml.Find<int(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
  const auto driver = nvml.Find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (!init || !shutdown || !count || !by_index || !name || !uuid || !memory || !driver) {
    notes->push_back("GPUs: " + library + " lacks a function that is needed");
    return {};
  }
  if (const int error = init(); error != 0) {
    notes->push_back(fmt::format("GPUs: NVML does not start (error {}): is the driver loaded?", error));
    return {};
  }
  GpuAnswer answer;
  std::array<char, 128> text{};
  if (driver(text.data(), text.size()) == 0) answer.driver = TextOf(text);
  unsigned gpus = 0;
  if (count(&gpus) != 0) gpus = 0;
  for (unsigned index = 0; index < gpus; ++index) {
    NvmlDevice device = nullptr;
    if (by_index(index, &device) != 0) {
      notes->push_back(fmt::format("GPUs: number {} does not answer", index));
      continue;
    }
    Gpu gpu;
    gpu.index = static_cast<int32_t>(index);
    if (name(device, text.data(), text.size()) == 0) gpu.name = TextOf(text);
    if (uuid(device, text.data(), text.size()) == 0) gpu.uuid = TextOf(text);
    NvmlMemory bytes = {};
    if (memory(device, &bytes) == 0) gpu.memory_bytes = static_cast<int64_t>(bytes.total);
    answer.gpus.push_back(std::move(gpu));
  }
  shutdown();
  return answer;
}

}  // namespace ringmaster::devices
