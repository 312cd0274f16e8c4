// SPDX-License-Identifier: Apache-2.0

// Translation of CUDA errors: the name of the error, its meaning and the remedy. The codes:
//
//   kUnavailable  no driver, a driver that is too old, or no device
//   kInvalid      the device cannot run this build, or an impossible request
//   kExhausted    out of device or pinned memory; the process can continue
//   kGone         the device or its context is lost (ECC error, illegal address, removed): every later call
//                 fails, so the process must exit; a new process may find the device healthy
//   kInternal     all others
#pragma once

#include <string_view>

#include "base/result.h"

namespace ringmaster::cuda {

// Returns the error for a cudaError_t other than cudaSuccess. `action` is what failed: "copying to the
// device".
Error DeviceError(int cuda_error, std::string_view action);

// The same for a device in use: a device that became unavailable is lost, so kUnavailable becomes kGone.
Error WorkError(int cuda_error, std::string_view action);

// Returns whether the process must exit, because no later call to the device can succeed.
inline bool MustExit(const Error& error) { return error.code == Code::kGone; }

}  // namespace ringmaster::cuda
