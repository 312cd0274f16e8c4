// SPDX-License-Identifier: Apache-2.0

// An error that a kernel made, detected by the emulation. Thrown by Launch.
#pragma once

#include <stdexcept>

namespace ringmaster::cuda::emulation {

class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ringmaster::cuda::emulation
