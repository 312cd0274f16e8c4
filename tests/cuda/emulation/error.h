// SPDX-License-Identifier: Apache-2.0

// What a kernel did wrong, found while it was emulated. Thrown out of Launch.
#pragma once

#include <stdexcept>

namespace ringmaster::cuda::emulation {

class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ringmaster::cuda::emulation
