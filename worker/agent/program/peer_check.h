// SPDX-License-Identifier: Apache-2.0

// The agent's part in the check of the network between pods (rendezvous/network_check.h): PeerListener takes
// the connections of peers, and PeerDialer connects to them. A peer is reachable when a TCP connection to it
// completes. Both never block and start no thread.
//
// A check leaves no connection in TIME_WAIT at the listener's port, so that the program can bind the port
// without SO_REUSEADDR: every connection ends with a reset (SO_LINGER 0). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "rendezvous/messages.h"
#include "worker/agent/net/resolver.h"

namespace ringmaster::agent {

// Listens on the port of the agent's next program, in addition to the ReservedPort that keeps it.
class PeerListener {
 public:
  // Connections that are open at a time; the oldest ones are reset. A peer ends its connection at once.
  static constexpr size_t kMaxConnections = 256;

  // Listens on all addresses of this pod. Errors: another process listens on the port.
  static Result<PeerListener> Open(int32_t port);

  // Readable when OnReadable has something to do.
  int fd() const { return epoll_.get(); }
  void OnReadable();
  size_t connections() const { return connections_.size(); }

 private:
  Status Listen(int family, int32_t port);
  void Accept(int listener);

  Fd epoll_;
  std::vector<Fd> listeners_;
  std::map<int, Fd> connections_;  // by descriptor
  std::deque<int> order_;          // of connections_, oldest first
};

struct DialLimits {
  Duration each = seconds(5);  // for one peer, including the lookup of its name
  size_t at_once = 64;
};

// Connects to many peers, some of them at a time.
class PeerDialer {
 public:
  explicit PeerDialer(DialLimits limits = {});

  // Connects to every address (host:port, [v6]:port) but that of index `self`. An earlier run is cancelled.
  void Start(std::vector<std::string> addresses, size_t self, Time now);
  void Cancel();
  bool running() const { return running_; }

  // Readable when Advance has something to do; it also has at deadline().
  int fd() const { return running_ ? epoll_.get() : -1; }
  Time deadline() const;
  // Returns nothing while connections are tried. The result ends the run: the peers that cannot be reached,
  // by index. After kMaxUnreachablePeers of them, the others are not tried.
  std::optional<std::vector<rendezvous::UnreachablePeer>> Advance(Time now);

 private:
  struct Attempt {
    size_t peer = 0;
    Time deadline = kNever;
    Resolver resolver;
    std::vector<SocketAddress> addresses;  // that were not tried
    Fd socket;
    std::string why;  // of the last address that failed
  };

  void Fill(Time now);
  void Begin(Attempt& attempt);
  void OnResolved(Attempt& attempt);
  void OnConnected(Attempt& attempt);
  void ConnectNext(Attempt& attempt);
  void Finish(const Attempt& attempt, const std::string& why);
  void Watch(int fd, uint32_t events, size_t peer);

  const DialLimits limits_;
  Fd epoll_;
  bool running_ = false;
  std::vector<std::string> addresses_;
  std::deque<size_t> waiting_;          // peers that were not tried
  std::map<size_t, Attempt> attempts_;  // by peer
  std::vector<rendezvous::UnreachablePeer> unreachable_;
};

}  // namespace ringmaster::agent
