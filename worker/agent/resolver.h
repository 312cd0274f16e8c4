// SPDX-License-Identifier: Apache-2.0

// Resolver looks up a host name without blocking the agent's loop, because DNS may take seconds. Numeric
// addresses resolve at once. Not thread-safe; each lookup runs in a separate thread, which may outlive the
// Resolver.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::agent {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

class Resolver {
 public:
  // Starts a lookup; the result of an earlier one is discarded.
  void Start(const std::string& host, const std::string& port);
  void Cancel() { pending_.reset(); }

  // Readable when Take has a result; -1 without a lookup.
  int fd() const;
  // Returns the result. REQUIRES: fd() is readable; call once per Start.
  Result<std::vector<SocketAddress>> Take();

 private:
  struct Pending;
  std::shared_ptr<Pending> pending_;
};

}  // namespace ringmaster::agent
