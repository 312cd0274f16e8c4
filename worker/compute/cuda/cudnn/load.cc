// SPDX-License-Identifier: Apache-2.0

// Finds libringmaster_cudnn.so next to the library that contains this code.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "worker/compute/cuda/attention_library.h"
#include "worker/compute/cuda/cudnn/plugin.h"

namespace ringmaster::cuda {
namespace {

Error None(const std::string& why) { return {Code::kUnavailable, why}; }

// Returns the path of the plugin; RINGMASTER_CUDNN_PLUGIN overrides it.
std::string Path() {
  if (const char* const path = std::getenv("RINGMASTER_CUDNN_PLUGIN"); path != nullptr && *path != '\0')
    return path;
  Dl_info self{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&LoadAttentionLibrary), &self) != 0;
  const std::filesystem::path folder =
      found && self.dli_fname != nullptr ? std::filesystem::path(self.dli_fname).parent_path() : ".";
  return folder / "libringmaster_cudnn.so";
}

}  // namespace

Result<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary() {
  const std::string path = Path();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return None(
        fmt::format("{} does not exist: this build has no cuDNN, or the plugin is not installed", path));
  // Never closed: cuDNN keeps compiled kernels, and registers handlers that run when the process exits.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return None(fmt::format("{} cannot be loaded: {}", path, why == nullptr ? "no reason given" : why));
  }
  auto* const entry = reinterpret_cast<cudnn::PluginEntry*>(::dlsym(library, cudnn::kPluginEntry));
  if (entry == nullptr) return None(fmt::format("{} is not a Ringmaster plugin", path));
  const cudnn::Plugin* const plugin = entry();
  if (plugin->interface != cudnn::kPluginInterface || std::string_view(plugin->build) != cudnn::kPluginBuild)
    return None(
        fmt::format("{} comes from another build than this program: install both from the same build", path));
  return plugin->create();
}

}  // namespace ringmaster::cuda
