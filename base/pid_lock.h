// SPDX-License-Identifier: Apache-2.0

// A lock file that holds the process id of its owner, so that a refusal names the process. Thread-safe.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster {

// Creates the file if it does not exist, locks it, and writes the id of this process into it. The lock lasts
// as long as the descriptor is open. A file system without locks is logged, and counts as locked. Errors:
// kConflict when another process holds the lock, with its id as the message; otherwise those of the system,
// also for a link: what it leads to is not written.
Result<Fd> TakePidLock(const std::string& path);

// Locks a file that another program may have created, and neither creates nor writes it. Errors: as above.
Result<Fd> HoldPidLock(const std::string& path);

}  // namespace ringmaster
