// SPDX-License-Identifier: Apache-2.0

// Opens files. Thread-safe.
#pragma once

#include <string>

#include "base/fd.h"

namespace ringmaster {

// As open(2) with O_CLOEXEC, and again after interrupts, which network file systems report.
Fd OpenFile(const std::string& path, int flags, unsigned mode = 0);

}  // namespace ringmaster
