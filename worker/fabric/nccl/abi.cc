// SPDX-License-Identifier: Apache-2.0

// Compares our declarations of NCCL with nccl.h at compile time, where that is installed; generates no code.
// What the header is too old for stays unchecked.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

#include <type_traits>

#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {
namespace {

// Maps one of NCCL's types to our declaration of it; handles and streams are the same types.
template <class T>
struct Ours {
  using Type = T;
};
template <class T>
requires std::is_enum_v<T>
struct Ours<T> {
  using Type = int;
};
template <>
struct Ours<ncclUniqueId> {
  using Type = UniqueId;
};
template <>
struct Ours<ncclConfig_t> {
  using Type = Configuration;
};
template <class T>
struct Ours<const T> {
  using Type = const typename Ours<T>::Type;
};
template <class T>
struct Ours<T*> {
  using Type = typename Ours<T>::Type*;
};
template <class R, class... A>
struct Ours<R(A...)> {
  using Type = typename Ours<R>::Type(typename Ours<A>::Type...);
};
template <class Theirs, class Declared>
constexpr bool kSame = std::is_same_v<typename Ours<Theirs>::Type*, Declared>;

}  // namespace

static_assert(kSame<decltype(ncclGetVersion), decltype(Api::get_version)> &&
              kSame<decltype(ncclGetErrorString), decltype(Api::error_string)> &&
              kSame<decltype(ncclGetLastError), decltype(Api::last_error)> &&
              kSame<decltype(ncclGetUniqueId), decltype(Api::unique_id)> &&
              kSame<decltype(ncclCommInitRankConfig), decltype(Api::init_rank)> &&
              kSame<decltype(ncclCommAbort), decltype(Api::abort)> &&
              kSame<decltype(ncclCommGetAsyncError), decltype(Api::async_error)> &&
              kSame<decltype(ncclAllReduce), decltype(Api::all_reduce)> &&
              kSame<decltype(ncclReduceScatter), decltype(Api::reduce_scatter)> &&
              kSame<decltype(ncclAllGather), decltype(Api::all_gather)> &&
              kSame<decltype(ncclBroadcast), decltype(Api::broadcast)> &&
              kSame<decltype(ncclSend), decltype(Api::send)> &&
              kSame<decltype(ncclRecv), decltype(Api::receive)> &&
              kSame<decltype(ncclGroupStart), decltype(Api::group_start)> &&
              kSame<decltype(ncclGroupEnd), decltype(Api::group_end)>);
#if NCCL_VERSION_CODE >= 21901
static_assert(kSame<decltype(ncclCommRegister), decltype(Api::register_memory)> &&
              kSame<decltype(ncclMemAlloc), decltype(Api::allocate)> &&
              kSame<decltype(ncclMemFree), decltype(Api::free)>);
#endif
#if NCCL_VERSION_CODE >= 22703
static_assert(kSame<decltype(ncclCommShrink), decltype(Api::shrink)>);
#endif
#if NCCL_VERSION_CODE >= 22807
static_assert(kSame<decltype(ncclCommRevoke), decltype(Api::revoke)>);
#endif
#if NCCL_VERSION_CODE >= 22902
static_assert(kSame<decltype(ncclCommGrow), decltype(Api::grow)> &&
              kSame<decltype(ncclCommGetUniqueId), decltype(Api::grow_id)>);
#endif
static_assert(std::is_same_v<Handle, ncclComm_t> && std::is_same_v<Stream, cudaStream_t>);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
              sizeof(ncclRedOp_t) == sizeof(int));
static_assert(static_cast<int>(ncclSuccess) == kSuccess &&
              static_cast<int>(ncclUnhandledCudaError) == kUnhandledCudaError &&
              static_cast<int>(ncclSystemError) == kSystemError &&
              static_cast<int>(ncclInternalError) == kInternalError &&
              static_cast<int>(ncclInvalidArgument) == kInvalidArgument &&
              static_cast<int>(ncclInvalidUsage) == kInvalidUsage &&
              static_cast<int>(ncclRemoteError) == kRemoteError &&
              static_cast<int>(ncclInProgress) == kInProgress);
static_assert(static_cast<int>(ncclInt8) == kByte && static_cast<int>(ncclInt32) == kInt32 &&
              static_cast<int>(ncclFloat32) == kFloat32 && static_cast<int>(ncclBfloat16) == kBfloat16);
static_assert(static_cast<int>(ncclSum) == kSum && static_cast<int>(ncclMax) == kMax);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && sizeof(Configuration) <= sizeof(ncclConfig_t));
static_assert(offsetof(Configuration, size) == offsetof(ncclConfig_t, size) &&
              offsetof(Configuration, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Configuration, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Configuration, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(Configuration, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(Configuration, min_ctas) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(Configuration, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(Configuration, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(Configuration, split_share) == offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22500
static_assert(offsetof(Configuration, traffic_class) == offsetof(ncclConfig_t, trafficClass));
#endif
static_assert(Configuration::kUndefined == NCCL_CONFIG_UNDEF_INT);

}  // namespace ringmaster::fabric::nccl
#endif
