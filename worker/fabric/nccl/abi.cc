// Our declarations of NCCL against its own, wherever those are: nothing is left in the program.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

#include <type_traits>

#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {

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
