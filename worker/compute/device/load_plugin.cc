// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/device/load_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

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
    return NoDevice(
        fmt::format("{} does not exist: this build has no CUDA, or the plugin is not installed", path));
  }
  // Never closed: its objects and threads may live as long as the process.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return NoDevice(fmt::format("{} cannot be loaded: {}", path, why == nullptr ? "no reason given" : why));
  }
  auto* const entry = reinterpret_cast<PluginEntry*>(::dlsym(library, kPluginEntry));
  if (entry == nullptr) return NoDevice(fmt::format("{} is not a Ringmaster plugin", path));
  const Plugin* const plugin = entry();
  if (plugin->interface != kPluginInterface || std::string_view(plugin->build) != kPluginBuild) {
    return NoDevice(
        fmt::format("{} comes from another build than this program: install both from the same build", path));
  }
  return plugin;
}

// Returns the folder of the shared library that has this code, or that of the program.
std::filesystem::path Folder() {
  Dl_info info{};
  link_map* map = nullptr;
  std::error_code error;
  if (::dladdr1(reinterpret_cast<const void*>(&PluginPath), &info, reinterpret_cast<void**>(&map),
                RTLD_DL_LINKMAP) != 0 &&
      map != nullptr && *map->l_name != '\0') {  // the name of the program itself is empty
    const std::filesystem::path library = std::filesystem::canonical(map->l_name, error);
    if (!error) return library.parent_path();
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path(".") : program.parent_path();
}

}  // namespace

std::string PluginPath() {
  if (const char* const path = std::getenv("RINGMASTER_DEVICE_PLUGIN"); path != nullptr && *path != '\0')
    return path;
  return Folder() / "libringmaster_cuda.so";
}

bool MayUseGpu(const std::string& choice) {
  std::error_code ignored;
  return choice != "cpu" && std::filesystem::exists(PluginPath(), ignored);
}

Result<FoundPlugin> FindPlugin(int index) {
  RM_ASSIGN(const Plugin* const plugin, Load(PluginPath()));
  RM_ASSIGN(std::string device, plugin->probe(index));
  return FoundPlugin{plugin, std::move(device)};
}

std::string DescribeAutoDevice() {
  const auto found = FindPlugin();
  return found.ok() ? "cuda: " + found->device : fmt::format("cpu (no GPU: {})", found.error().message);
}

}  // namespace ringmaster::device
