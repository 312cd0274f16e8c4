// SPDX-License-Identifier: Apache-2.0

// OwnNameCheck warns when the name of this host does not lead to it. Some programs resolve it when they
// start: gloo of PyTorch binds the address that it finds, and loopback where it finds none, so its peers
// cannot connect. The check of the network (peer_check.h) uses addresses and does not find that.
//
// This is a warning and refuses nothing: NCCL, TensorFlow, JAX, and gloo with GLOO_SOCKET_IFNAME do not use
// the name, and nodes whose name has no address, or 127.0.1.1 as on Debian, are common with the host network.
// The C library of the image may also know names that the agent's resolver does not, from nss-myhostname for
// example.
//
// Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "worker/agent/net/resolver.h"

namespace ringmaster::agent {

// Returns what is wrong with the name of this host; empty: nothing. `address`: where peers reach the pod.
std::string OwnNameProblem(const std::string& pod, const std::string& name, const std::string& address,
                           const Result<std::vector<SocketAddress>>& found);

class OwnNameCheck {
 public:
  // Looks the name up. Later calls do nothing.
  void Start(const std::string& pod, const std::string& address);
  // Readable when Advance has something to do; -1: no lookup runs.
  int fd() const { return resolver_.fd(); }
  // Logs the problem that the lookup has found.
  void Advance();

 private:
  Resolver resolver_;
  std::string pod_;
  std::string name_;
  std::string address_;
  bool started_ = false;
};

}  // namespace ringmaster::agent
