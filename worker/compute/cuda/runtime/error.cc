// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/runtime/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace ringmaster::cuda {
namespace {

struct Known {
  int number;
  const char* name;
  Code code;
  const char* words;  // what it means, and what to do
};

// The numbers are part of CUDA's binary interface. What is not here does not happen to this program, or says
// nothing that its number does not.
constexpr Known kKnown[] = {
    {1, "cudaErrorInvalidValue", Code::kInternal, "an argument is out of range: a mistake of this program"},
    {2, "cudaErrorMemoryAllocation", Code::kExhausted, "the device has not enough free memory"},
    {3, "cudaErrorInitializationError", Code::kUnavailable,
     "the driver could not be started: look at dmesg and nvidia-smi on the node"},
    {9, "cudaErrorInvalidConfiguration", Code::kInternal,
     "a kernel was launched in an impossible shape: a mistake of this program"},
    {34, "cudaErrorStubLibrary", Code::kUnavailable,
     "libcuda.so.1 is a stub for building; mount the driver of the node into the container"},
    {35, "cudaErrorInsufficientDriver", Code::kUnavailable,
     "there is no NVIDIA driver, or it is too old for CUDA 13: install driver 580 or newer, and in a "
     "container request nvidia.com/gpu so that it is mounted"},
    {46, "cudaErrorDevicesUnavailable", Code::kUnavailable,
     "the GPU is in use by another process that does not share it (compute mode exclusive), or in a bad "
     "state"},
    {98, "cudaErrorInvalidDeviceFunction", Code::kInvalid,
     "this build has no code for the GPU's architecture"},
    {100, "cudaErrorNoDevice", Code::kUnavailable,
     "no GPU is visible: request nvidia.com/gpu, and look at CUDA_VISIBLE_DEVICES"},
    {101, "cudaErrorInvalidDevice", Code::kInvalid, "there is no GPU of that number"},
    {209, "cudaErrorNoKernelImageForDevice", Code::kInvalid,
     "this build has no code for the GPU's architecture: build with RINGMASTER_CUDA_ARCHITECTURES=native on "
     "it"},
    {214, "cudaErrorECCUncorrectable", Code::kGone,
     "the GPU's memory has an uncorrectable error (ECC): the device must be reset, and replaced when it "
     "happens again"},
    {216, "cudaErrorDeviceAlreadyInUse", Code::kUnavailable, "another process uses the GPU exclusively"},
    {220, "cudaErrorNvlinkUncorrectable", Code::kGone,
     "NVLink has an uncorrectable error: look at nvidia-smi nvlink and dmesg on the node"},
    {222, "cudaErrorUnsupportedPtxVersion", Code::kInvalid,
     "the driver is too old to compile this build's code for the GPU: install a newer driver"},
    {226, "cudaErrorContained", Code::kGone, "the GPU contained an error; the process must leave"},
    {700, "cudaErrorIllegalAddress", Code::kGone, "a kernel used memory that it does not have"},
    {701, "cudaErrorLaunchOutOfResources", Code::kInternal,
     "a kernel asks for more than the device has: a mistake of this program"},
    {702, "cudaErrorLaunchTimeout", Code::kGone, "a kernel ran longer than the system allows"},
    {709, "cudaErrorContextIsDestroyed", Code::kGone, "the device's context is gone"},
    {710, "cudaErrorAssert", Code::kGone, "an assertion failed in a kernel"},
    {714, "cudaErrorHardwareStackError", Code::kGone, "a stack of the device is broken"},
    {715, "cudaErrorIllegalInstruction", Code::kGone, "a kernel met an illegal instruction"},
    {716, "cudaErrorMisalignedAddress", Code::kGone, "a kernel used a misaligned address"},
    {717, "cudaErrorInvalidAddressSpace", Code::kGone, "a kernel used the wrong kind of address"},
    {718, "cudaErrorInvalidPc", Code::kGone, "the device's program counter is wrong"},
    {719, "cudaErrorLaunchFailure", Code::kGone,
     "a kernel failed on the device: look for an Xid line in dmesg on the node"},
    {801, "cudaErrorNotSupported", Code::kInvalid, "this GPU or driver cannot do that"},
    {802, "cudaErrorSystemNotReady", Code::kUnavailable,
     "the machine is not ready: on NVSwitch systems start nvidia-fabricmanager"},
    {803, "cudaErrorSystemDriverMismatch", Code::kUnavailable,
     "driver and its libraries have different versions: reboot the node or reinstall the driver"},
    {804, "cudaErrorCompatNotSupportedOnDevice", Code::kUnavailable,
     "this GPU cannot use the forward-compatibility libraries: install a newer driver"},
    {805, "cudaErrorMpsConnectionFailed", Code::kUnavailable,
     "the MPS server cannot be reached: is CUDA_MPS_PIPE_DIRECTORY mounted into the container?"},
    {806, "cudaErrorMpsRpcFailure", Code::kUnavailable, "the MPS server does not answer"},
    {807, "cudaErrorMpsServerNotReady", Code::kUnavailable, "the MPS server is not ready"},
    {808, "cudaErrorMpsMaxClientsReached", Code::kUnavailable,
     "the MPS server has no room for another process"},
    {809, "cudaErrorMpsMaxConnectionsReached", Code::kUnavailable,
     "the MPS server has no room for another connection"},
    {810, "cudaErrorMpsClientTerminated", Code::kGone, "the MPS server has ended this process's work"},
    {911, "cudaErrorExternalDevice", Code::kGone, "a device outside of CUDA failed beneath it"},
    {999, "cudaErrorUnknown", Code::kGone,
     "the driver does not say what: look for an Xid line in dmesg on the node"},
};

}  // namespace

Error DeviceError(int cuda_error, std::string_view doing) {
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                         [&](const Known& each) { return each.number == cuda_error; });
  if (known == std::end(kKnown))
    return {Code::kInternal, fmt::format("{}: CUDA error {}", doing, cuda_error)};
  return {known->code, fmt::format("{}: {} ({})", doing, known->words, known->name)};
}

Error WorkError(int cuda_error, std::string_view doing) {
  Error error = DeviceError(cuda_error, doing);
  if (error.code == Code::kUnavailable) error.code = Code::kGone;
  return error;
}

}  // namespace ringmaster::cuda
