// SPDX-License-Identifier: Apache-2.0

// Resolver looks up a host name without blocking the agent's loop, because DNS may take seconds. It reads
// /etc/hosts and /etc/resolv.conf for each lookup and talks to the name servers itself (c-ares): the C
// library would load shared libraries of the image for that, and an image may have none. Numeric addresses
// resolve at once. Not thread-safe; starts no thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
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
  Resolver();
  ~Resolver();
  Resolver(Resolver&&) noexcept;
  Resolver& operator=(Resolver&&) noexcept;

  // Starts a lookup; the result of an earlier one is discarded. `port` is a number.
  void Start(const std::string& host, const std::string& port);
  void Cancel();

  // Readable when Advance has something to do; -1 without a lookup.
  int fd() const;
  // Processes what the name servers answered, and their timeouts. Returns nothing while the lookup still
  // runs; the result ends the lookup. REQUIRES: fd() is readable.
  std::optional<Result<std::vector<SocketAddress>>> Advance();

 private:
  struct Lookup;
  std::unique_ptr<Lookup> lookup_;
};

}  // namespace ringmaster::agent
