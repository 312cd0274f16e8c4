// SPDX-License-Identifier: Apache-2.0

// The part of NCCL that is used, as a table of functions filled from libnccl.so.2 at run time: one worker
// binary runs with and without NCCL, and uses newer functions where the library has them. The declarations
// are our own, so that the build needs no header of NVIDIA; abi.cc compares them with nccl.h where that is
// installed.
//
// The table is plain data. communicator.h has the rules for calling its functions.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

// The names that CUDA and NCCL use, so that their headers are not needed.
struct CUstream_st;
struct ncclComm;

namespace ringmaster::fabric::nccl {

using Stream = CUstream_st*;
using Handle = ncclComm*;

// ncclResult_t.
enum ResultCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// A non-blocking call that is still in progress has not failed.
inline bool Succeeded(int result) { return result == kSuccess || result == kInProgress; }

// ncclDataType_t and ncclRedOp_t.
enum DataType : int { kByte = 0, kInt32 = 2, kFloat32 = 7, kBfloat16 = 9 };
enum Operation : int { kSum = 0, kMax = 2 };

struct UniqueId {
  std::array<char, 128> bytes;
};

// The first fields of ncclConfig_t as of 2.18, and the next field, which was padding then. A newer library
// sets its further fields to defaults, because of `version`.
struct Configuration {
  static constexpr int kUndefined = INT_MIN;
  size_t size = sizeof(Configuration);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
};

// NCCL encodes version 2.18.0 as 21800, and 2.28.9 as 22809.
inline constexpr int kOldestVersion = 21800;
inline constexpr int kSharesGpuVersion = 23000;  // the first that knows NCCL_MULTI_RANK_GPU_ENABLE
std::string VersionName(int version);            // "2.28.9"

// The functions of the last block are nullptr when the library is older than they are.
struct Api {
  int (*get_version)(int* version) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  const char* (*last_error)(Handle handle) = nullptr;
  int (*unique_id)(UniqueId* id) = nullptr;
  int (*init_rank)(Handle* handle, int world, UniqueId id, int rank, Configuration* configuration) = nullptr;
  int (*abort)(Handle handle) = nullptr;
  int (*async_error)(Handle handle, int* result) = nullptr;
  int (*all_reduce)(const void* in, void* out, size_t count, int type, int operation, Handle handle,
                    Stream stream) = nullptr;
  int (*reduce_scatter)(const void* in, void* out, size_t share, int type, int operation, Handle handle,
                        Stream stream) = nullptr;
  int (*all_gather)(const void* in, void* out, size_t share, int type, Handle handle,
                    Stream stream) = nullptr;
  int (*broadcast)(const void* in, void* out, size_t count, int type, int root, Handle handle,
                   Stream stream) = nullptr;

  int (*send)(const void* data, size_t count, int type, int peer, Handle handle, Stream stream) = nullptr;
  int (*receive)(void* data, size_t count, int type, int peer, Handle handle, Stream stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

  int (*revoke)(Handle handle, int flags) = nullptr;  // 2.28.7
  int (*shrink)(Handle handle, int* excluded, int count, Handle* smaller, Configuration* configuration,
                int flags) = nullptr;  // 2.27.3
  // Old members pass their `handle` and rank -1; one of them passes the id it got, the others pass no id. New
  // members pass the id and their rank, and no handle. 2.29.2, as grow_id.
  int (*grow)(Handle handle, int world, const UniqueId* id, int rank, Handle* larger,
              Configuration* configuration) = nullptr;
  int (*grow_id)(Handle handle, UniqueId* id) = nullptr;
  int (*register_memory)(Handle handle, void* memory, size_t bytes, void** token) = nullptr;  // 2.19
  // Allocates memory of the calling thread's GPU that registration can use. Needs no communicator. 2.19
  int (*allocate)(void** memory, size_t bytes) = nullptr;
  int (*free)(void* memory) = nullptr;

  int version = 0;  // 0: no library, and no functions
};

inline constexpr const char* kLibrary = "libnccl.so.2";

// Loads `library` until the process ends. Errors: kUnavailable when it is not installed, kInvalid when it is
// too old or not NCCL. Messages say what to do.
Result<Api> LoadApi(const std::string& library = kLibrary);

}  // namespace ringmaster::fabric::nccl
