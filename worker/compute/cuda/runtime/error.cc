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
  const char* text;  // meaning and remedy
};

// The numbers are part of CUDA's binary interface. Other errors do not occur in this program, or have no more
// helpful text than their number.
constexpr Known kKnown[] = {
    {1, "cudaErrorInvalidValue", Code::kInternal, "an argument is out of range: a bug in this program"},
    {2, "cudaErrorMemoryAllocation", Code::kExhausted, "the device has not enough free memory"},
    {3, "cudaErrorInitializationError", Code::kUnavailable,
     "the driver did not start: check dmesg and nvidia-smi on the node"},
    {9, "cudaErrorInvalidConfiguration", Code::kInternal,
     "a kernel was launched with an invalid configuration: a bug in this program"},
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
     "no GPU is visible: request nvidia.com/gpu, and check CUDA_VISIBLE_DEVICES"},
    {101, "cudaErrorInvalidDevice", Code::kInvalid, "there is no GPU of that number"},
    {209, "cudaErrorNoKernelImageForDevice", Code::kInvalid,
     "this build has no code for the GPU's architecture: build with RINGMASTER_CUDA_ARCHITECTURES=native on "
     "it"},
    {214, "cudaErrorECCUncorrectable", Code::kGone,
     "the GPU's memory has an uncorrectable error (ECC): reset the device, and replace it when it "
     "happens again"},
    {216, "cudaErrorDeviceAlreadyInUse", Code::kUnavailable, "another process uses the GPU exclusively"},
    {220, "cudaErrorNvlinkUncorrectable", Code::kGone,
     "NVLink has an uncorrectable error: check nvidia-smi nvlink and dmesg on the node"},
    {222, "cudaErrorUnsupportedPtxVersion", Code::kInvalid,
     "the driver is too old to compile this build's code for the GPU: install a newer driver"},
    {226, "cudaErrorContained", Code::kGone, "the GPU contained an error; the process must exit"},
    {700, "cudaErrorIllegalAddress", Code::kGone, "a kernel accessed an invalid address"},
    {701, "cudaErrorLaunchOutOfResources", Code::kInternal,
     "a kernel needs more resources than the device has: a bug in this program"},
    {702, "cudaErrorLaunchTimeout", Code::kGone, "a kernel ran longer than the system allows"},
    {709, "cudaErrorContextIsDestroyed", Code::kGone, "the context of the device was destroyed"},
    {710, "cudaErrorAssert", Code::kGone, "an assertion failed in a kernel"},
    {714, "cudaErrorHardwareStackError", Code::kGone, "the stack of a kernel is corrupt"},
    {715, "cudaErrorIllegalInstruction", Code::kGone, "a kernel executed an illegal instruction"},
    {716, "cudaErrorMisalignedAddress", Code::kGone, "a kernel used a misaligned address"},
    {717, "cudaErrorInvalidAddressSpace", Code::kGone, "a kernel used an address of the wrong space"},
    {718, "cudaErrorInvalidPc", Code::kGone, "the program counter of a kernel is invalid"},
    {719, "cudaErrorLaunchFailure", Code::kGone,
     "a kernel failed on the device: check dmesg on the node for an Xid line"},
    {801, "cudaErrorNotSupported", Code::kInvalid, "this GPU or driver does not support the operation"},
    {802, "cudaErrorSystemNotReady", Code::kUnavailable,
     "the machine is not ready: on NVSwitch systems start nvidia-fabricmanager"},
    {803, "cudaErrorSystemDriverMismatch", Code::kUnavailable,
     "the driver and its libraries have different versions: reboot the node or reinstall the driver"},
    {804, "cudaErrorCompatNotSupportedOnDevice", Code::kUnavailable,
     "this GPU cannot use the forward-compatibility libraries: install a newer driver"},
    {805, "cudaErrorMpsConnectionFailed", Code::kUnavailable,
     "the MPS server cannot be reached: is CUDA_MPS_PIPE_DIRECTORY mounted into the container?"},
    {806, "cudaErrorMpsRpcFailure", Code::kUnavailable, "the MPS server does not answer"},
    {807, "cudaErrorMpsServerNotReady", Code::kUnavailable, "the MPS server is not ready"},
    {808, "cudaErrorMpsMaxClientsReached", Code::kUnavailable, "the MPS server accepts no further process"},
    {809, "cudaErrorMpsMaxConnectionsReached", Code::kUnavailable,
     "the MPS server accepts no further connection"},
    {810, "cudaErrorMpsClientTerminated", Code::kGone, "the MPS server terminated this process's work"},
    {911, "cudaErrorExternalDevice", Code::kGone, "an external device failed"},
    {999, "cudaErrorUnknown", Code::kGone,
     "the driver gives no reason: check dmesg on the node for an Xid line"},
};

}  // namespace

Error DeviceError(int cuda_error, std::string_view action) {
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                         [&](const Known& each) { return each.number == cuda_error; });
  if (known == std::end(kKnown))
    return {Code::kInternal, fmt::format("{}: CUDA error {}", action, cuda_error)};
  return {known->code, fmt::format("{}: {} ({})", action, known->text, known->name)};
}

Error WorkError(int cuda_error, std::string_view action) {
  Error error = DeviceError(cuda_error, action);
  if (error.code == Code::kUnavailable) error.code = Code::kGone;
  return error;
}

}  // namespace ringmaster::cuda
