// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/load_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace ringmaster::device {
namespace {

Error NoDevice(const std::string& why) { return {Code::kUnavailable, why}; }

Result<const Plugin*> Load(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return NoDevice(fmt::format("{} is not there: this build has no CUDA, or it was not installed", path));
  }
  // Never closed: objects and threads of it may live as long as the process.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return NoDevice(fmt::format("{} cannot be loaded: {}", path, why == nullptr ? "no reason given" : why));
  }
  auto* const entry = reinterpret_cast<PluginEntry*>(::dlsym(library, kPluginEntry));
  if (entry == nullptr) return NoDevice(fmt::format("{} is no library of Ringmaster's", path));
  const Plugin* const plugin = entry();
  if (plugin->interface != kPluginInterface || std::string_view(plugin->build) != kPluginBuild) {
    return NoDevice(fmt::format("{} is of another build than this program: install both from one", path));
  }
  return plugin;
}

}  // namespace

std::string PluginPath() {
  if (const char* const asked = std::getenv("RINGMASTER_DEVICE_PLUGIN"); asked != nullptr && *asked != '\0')
    return asked;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path(".") : self.parent_path()) / "libringmaster_cuda.so";
}

Result<Found> FindPlugin() {
  RM_ASSIGN(const Plugin* const plugin, Load(PluginPath()));
  RM_ASSIGN(std::string device, plugin->probe());
  return Found{plugin, std::move(device)};
}

std::string Describe() {
  const auto found = FindPlugin();
  return found.ok() ? "cuda: " + found->device : fmt::format("cpu (no GPU: {})", found.error().message);
}

}  // namespace ringmaster::device
