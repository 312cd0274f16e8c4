// SPDX-License-Identifier: Apache-2.0

// Finds libringmaster_cudnn.so beside the library that this is part of.
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

// RINGMASTER_CUDNN_PLUGIN names another one.
std::string Path() {
  if (const char* const asked = std::getenv("RINGMASTER_CUDNN_PLUGIN"); asked != nullptr && *asked != '\0')
    return asked;
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
    return None(fmt::format("{} is not there: this build has no cuDNN, or it was not installed", path));
  // Never closed: cuDNN keeps what it has compiled, and registers work to be done at the process's end.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return None(fmt::format("{} cannot be loaded: {}", path, why == nullptr ? "no reason given" : why));
  }
  auto* const entry = reinterpret_cast<cudnn::PluginEntry*>(::dlsym(library, cudnn::kPluginEntry));
  if (entry == nullptr) return None(fmt::format("{} is no library of Ringmaster's", path));
  const cudnn::Plugin* const plugin = entry();
  if (plugin->interface != cudnn::kPluginInterface || std::string_view(plugin->build) != cudnn::kPluginBuild)
    return None(fmt::format("{} is of another build than this program: install both from one", path));
  return plugin->create();
}

}  // namespace ringmaster::cuda
