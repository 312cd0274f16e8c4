// SPDX-License-Identifier: Apache-2.0

// Whether NCCL is installed, and the network plugin that the user has named: NCCL itself ignores a missing
// plugin silently.
#include <dlfcn.h>
#include <fmt/format.h>

#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {
namespace {

// Loading runs initialisers of the library, as training will do; no function is called.
bool CanLoad(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return false;
  ::dlclose(handle);
  return true;
}

}  // namespace

Nccl QueryNccl(const std::string& library, const std::string& plugin) {
  Nccl nccl;
  nccl.plugin = plugin;
  // In the order in which NCCL searches for it.
  nccl.plugin_found =
      !plugin.empty() && (plugin == "none" || CanLoad(plugin) || CanLoad("libnccl-net-" + plugin + ".so"));
  void* const handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return nccl;
  const auto version = reinterpret_cast<int (*)(int*)>(::dlsym(handle, "ncclGetVersion"));
  int number = 0;
  if (version != nullptr && version(&number) == 0)
    nccl.version = fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  return nccl;
}

}  // namespace ringmaster::inventory
