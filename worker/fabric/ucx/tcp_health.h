// SPDX-License-Identifier: Apache-2.0

// Finds TCP connections whose other end has vanished without a word: a broken NIC, a lost route, a firewall
// that drops packets. The kernel repeats unacknowledged data for a quarter of an hour before it gives up, and
// UCX does not expose its sockets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::fabric::ucx {

// Returns the TCP sockets that an epoll instance watches, also through further epoll instances within it. The
// kernel lists them in /proc, so sockets of the program that runs in this process are not among them.
std::vector<int> WatchedSockets(int epoll_fd);

// Judges the connections of one generation. Not thread-safe.
class TcpHealth {
 public:
  // `sockets`: those that exist when the generation begins, before any of its messages.
  explicit TcpHealth(const std::vector<int>& sockets);

  // Returns the remote address ("10.0.0.7:41234") of a connection among `sockets` that has repeated data in
  // vain for longer than `limit`; empty when there is none. A peer that is alive acknowledges even while its
  // process computes, because its kernel answers. Ignores connections that have acknowledged nothing since
  // the generation began: every member acknowledges its first message, so such a connection leads to a
  // process that is no longer a member, for example on a lost node.
  std::string FindUnacknowledged(const std::vector<int>& sockets, Duration limit) const;

 private:
  std::map<int, uint64_t> written_;  // bytes before the generation, by socket
};

}  // namespace ringmaster::fabric::ucx
