// SPDX-License-Identifier: Apache-2.0

// A driver (libcuda.so.1) without a device: cuDNN does not compile plans without a driver. It exports the
// symbols that cuDNN 9.19 needs. All functions fail except those that load compiled code, the last step of
// building a plan; no code is ever run.
extern "C" {

#define RM_WITHOUT_DEVICE(name) \
  int name() { return 100; } /* CUDA_ERROR_NO_DEVICE */
RM_WITHOUT_DEVICE(cuCtxGetCurrent)
RM_WITHOUT_DEVICE(cuCtxGetDevice)
RM_WITHOUT_DEVICE(cuCtxGetLimit)
RM_WITHOUT_DEVICE(cuCtxPopCurrent)
RM_WITHOUT_DEVICE(cuCtxPushCurrent)
RM_WITHOUT_DEVICE(cuDeviceGet)
RM_WITHOUT_DEVICE(cuDeviceGetAttribute)
RM_WITHOUT_DEVICE(cuDeviceGetCount)
RM_WITHOUT_DEVICE(cuDevicePrimaryCtxRelease)
RM_WITHOUT_DEVICE(cuDevicePrimaryCtxReset)
RM_WITHOUT_DEVICE(cuDevicePrimaryCtxRetain)
RM_WITHOUT_DEVICE(cuDriverGetVersion)
RM_WITHOUT_DEVICE(cuFuncGetAttribute)
RM_WITHOUT_DEVICE(cuFuncSetAttribute)
RM_WITHOUT_DEVICE(cuGetErrorName)
RM_WITHOUT_DEVICE(cuGetErrorString)
RM_WITHOUT_DEVICE(cuGetProcAddress)
RM_WITHOUT_DEVICE(cuGetProcAddress_v2)
RM_WITHOUT_DEVICE(cuInit)
RM_WITHOUT_DEVICE(cuKernelGetAttribute)
RM_WITHOUT_DEVICE(cuLaunchCooperativeKernel)
RM_WITHOUT_DEVICE(cuLaunchKernel)
RM_WITHOUT_DEVICE(cuLaunchKernelEx)
RM_WITHOUT_DEVICE(cuLibraryLoadFromFile)
RM_WITHOUT_DEVICE(cuLinkAddData)
RM_WITHOUT_DEVICE(cuLinkAddData_v2)
RM_WITHOUT_DEVICE(cuLinkAddFile_v2)
RM_WITHOUT_DEVICE(cuLinkComplete)
RM_WITHOUT_DEVICE(cuLinkCreate)
RM_WITHOUT_DEVICE(cuLinkCreate_v2)
RM_WITHOUT_DEVICE(cuLinkDestroy)
RM_WITHOUT_DEVICE(cuMemcpyDtoH_v2)
RM_WITHOUT_DEVICE(cuModuleGetFunction)
RM_WITHOUT_DEVICE(cuModuleGetGlobal_v2)
RM_WITHOUT_DEVICE(cuModuleLoadData)
RM_WITHOUT_DEVICE(cuModuleLoadDataEx)
RM_WITHOUT_DEVICE(cuModuleLoadFatBinary)
RM_WITHOUT_DEVICE(cuModuleUnload)
RM_WITHOUT_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
RM_WITHOUT_DEVICE(cuOccupancyMaxPotentialClusterSize)
RM_WITHOUT_DEVICE(cuStreamGetCtx)
RM_WITHOUT_DEVICE(cuStreamSynchronize)
RM_WITHOUT_DEVICE(cuTensorMapEncodeTiled)
#undef RM_WITHOUT_DEVICE

// Accepts code that is ELF for the GPU, as NVRTC produces, and rejects everything else.
int cuLibraryLoadData(void** library, const void* code) {
  static constexpr unsigned char kElf[] = {0x7f, 'E', 'L', 'F'};
  for (int i = 0; i < 4; ++i)
    if (static_cast<const unsigned char*>(code)[i] != kElf[i]) return 200;  // CUDA_ERROR_INVALID_IMAGE
  static char loaded;
  *library = &loaded;
  return 0;
}
int cuLibraryGetKernel(void** kernel, void* library, const char*) {
  *kernel = library;
  return 0;
}
int cuLibraryUnload() { return 0; }
int cuKernelSetAttribute() { return 0; }

}  // extern "C"
