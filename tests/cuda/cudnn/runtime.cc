// SPDX-License-Identifier: Apache-2.0

// An emulated cudart: answers the queries of cuDNN's headers about the current device for a described GPU.
// No work is run, so the other functions that the headers reference are never called.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>

#include "tests/cuda/cudnn/gpus.h"

namespace ringmaster::cuda::cudnn {
namespace {

constinit const DescribedGpu* current = &kGpus[0];

}  // namespace

void SetGpu(const DescribedGpu& gpu) { current = &gpu; }

std::string Describe(const DescribedGpu& gpu) {
  return fmt::format(
      R"({{"cudaDeviceId": 0, "deviceVer": {}, "driverVer": 13000, "totalGlobalMem": {:.0f}, )"
      R"("maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], )"
      R"("regsPerBlock": 65536, "multiProcessorCount": {}, "warpSize": 32, )"
      R"("maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {}, )"
      R"("reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, )"
      R"("maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, )"
      R"("supportCoopLaunch": 1, "smClockRateKHz": 1700000, "memClockRateKHz": 3000000, )"
      R"("l2CacheSize": {}, "deviceName": "{}"}})",
      10 * gpu.architecture, gpu.memory, gpu.multiprocessors, gpu.shared_memory, gpu.l2_cache, gpu.name);
}

}  // namespace ringmaster::cuda::cudnn

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  properties->major = ringmaster::cuda::cudnn::current->architecture / 10;
  properties->minor = ringmaster::cuda::cudnn::current->architecture % 10;
  properties->multiProcessorCount = ringmaster::cuda::cudnn::current->multiprocessors;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { std::abort(); }
cudaError_t cudaEventCreate(cudaEvent_t*) { std::abort(); }
cudaError_t cudaEventDestroy(cudaEvent_t) { std::abort(); }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { std::abort(); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { std::abort(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { std::abort(); }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { std::abort(); }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { std::abort(); }
const char* cudaGetErrorString(cudaError_t) { return "there is no device"; }

}  // extern "C"
