// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace ringmaster::fabric::nccl {

std::string VersionName(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<Api> LoadApi(const std::string& library) {
  // Never unloaded: it keeps threads and registers exit handlers.
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    const char* const why = ::dlerror();
    return Error{Code::kUnavailable, fmt::format("NCCL: {} cannot be loaded ({}); install NCCL 2.18 or newer "
                                                 "in the image, or set spec.network.transport to ucx",
                                                 library, why == nullptr ? "no reason given" : why)};
  }
  Api api;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function, bool needed) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(loaded, name));
    if (needed && *function == nullptr) missing = name;
  };
  find("ncclGetVersion", &api.get_version, true);
  find("ncclGetErrorString", &api.error_string, true);
  find("ncclGetLastError", &api.last_error, true);
  find("ncclGetUniqueId", &api.unique_id, true);
  find("ncclCommInitRankConfig", &api.init_rank, true);
  find("ncclCommAbort", &api.abort, true);
  find("ncclCommGetAsyncError", &api.async_error, true);
  find("ncclAllReduce", &api.all_reduce, true);
  find("ncclReduceScatter", &api.reduce_scatter, true);
  find("ncclAllGather", &api.all_gather, true);
  find("ncclBroadcast", &api.broadcast, true);
  find("ncclSend", &api.send, true);
  find("ncclRecv", &api.receive, true);
  find("ncclGroupStart", &api.group_start, true);
  find("ncclGroupEnd", &api.group_end, true);
  find("ncclCommRevoke", &api.revoke, false);
  find("ncclCommShrink", &api.shrink, false);
  find("ncclCommGrow", &api.grow, false);
  find("ncclCommGetUniqueId", &api.grow_id, false);
  find("ncclCommRegister", &api.register_memory, false);
  find("ncclMemAlloc", &api.allocate, false);
  find("ncclMemFree", &api.free, false);
  if (missing != nullptr)
    return Error{Code::kInvalid,
                 fmt::format("NCCL: {} lacks {}; install NCCL 2.18 or newer", library, missing)};
  if (const int result = api.get_version(&api.version); result != kSuccess)
    return Error{Code::kInvalid,
                 fmt::format("NCCL: {} does not report its version: {}", library, api.error_string(result))};
  if (api.version < kOldestVersion)
    return Error{Code::kInvalid, fmt::format("NCCL: {} is version {}; install 2.18 or newer", library,
                                             VersionName(api.version))};
  return api;
}

}  // namespace ringmaster::fabric::nccl
