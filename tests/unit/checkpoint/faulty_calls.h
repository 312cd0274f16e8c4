// SPDX-License-Identifier: Apache-2.0

// Makes system calls of this process fail as those on network file systems do. The functions of the C library
// that code of this program calls (read, fsync, flock, close) ask the hook first.
#pragma once

#include <functional>
#include <string>

namespace ringmaster::checkpoint {

// Returns the errno that the call on the file `path` fails with, or 0 to let it through.
using FaultHook = std::function<int(const std::string& call, const std::string& path)>;

// Installs the hook as long as it lives. Not thread-safe: no call is in progress meanwhile. The hook may be
// called by any thread.
class FaultyCalls {
 public:
  explicit FaultyCalls(FaultHook hook);
  ~FaultyCalls();
  FaultyCalls(const FaultyCalls&) = delete;
  FaultyCalls& operator=(const FaultyCalls&) = delete;
};

}  // namespace ringmaster::checkpoint
