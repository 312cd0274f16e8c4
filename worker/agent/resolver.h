// SPDX-License-Identifier: Apache-2.0

// Looks a host name up without stopping the agent's loop: DNS may take seconds. Numeric addresses are
// answered at once. Main thread; each look-up runs on a thread of its own, which may outlive the Resolver.
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
  // Nothing of an earlier look-up is reported any more.
  void Start(const std::string& host, const std::string& port);
  void Cancel() { pending_.reset(); }

  // Readable when Take has an answer; -1 while none is asked for.
  int fd() const;
  // Call once per Start, when fd() is readable.
  Result<std::vector<SocketAddress>> Take();

 private:
  struct Pending;
  std::shared_ptr<Pending> pending_;
};

}  // namespace ringmaster::agent
