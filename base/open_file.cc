// SPDX-License-Identifier: Apache-2.0

#include "base/open_file.h"

#include <fcntl.h>

#include <cerrno>

namespace ringmaster {

Fd OpenFile(const std::string& path, int flags, unsigned mode) {
  while (true) {
    Fd file(::open(path.c_str(), flags | O_CLOEXEC, mode));
    if (file.valid() || errno != EINTR) return file;
  }
}

}  // namespace ringmaster
