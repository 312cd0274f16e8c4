// SPDX-License-Identifier: Apache-2.0

// What failures of a GPU become: CUDA's name for it, in words, and what to do. The codes say what may be
// done:
//
//   kUnavailable  no driver, a driver that is too old, no device: this machine cannot, here and now
//   kInvalid      the device cannot run this build or was asked for something impossible
//   kExhausted    out of device or pinned memory; the process may go on
//   kGone         the device or its context is lost (ECC error, illegal address, unplugged): every later call
//                 of this process fails too, so it must leave; a new process may find the device well
//   kInternal     anything else
#pragma once

#include <string_view>

#include "base/result.h"

namespace ringmaster::cuda {

// Of a cudaError_t that is not cudaSuccess; `doing` says what failed: "copying to the device".
Error DeviceError(int cuda_error, std::string_view doing);

// The same of a device that is at work: one that is not to be had any more is lost. Memory that is short
// stays that.
Error WorkError(int cuda_error, std::string_view doing);

// The process has to end: nothing that this process asks of the device will work again.
inline bool MustLeave(const Error& error) { return error.code == Code::kGone; }

}  // namespace ringmaster::cuda
