// SPDX-License-Identifier: Apache-2.0

#include "base/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace ringmaster {

Result<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoError("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

}  // namespace ringmaster
