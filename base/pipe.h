// SPDX-License-Identifier: Apache-2.0

// Both ends of a pipe. MakePipe opens them close-on-exec.
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster {

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> MakePipe();

}  // namespace ringmaster
