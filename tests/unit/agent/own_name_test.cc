// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/own_name.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"

namespace ringmaster::agent {
namespace {

using Found = Result<std::vector<SocketAddress>>;

SocketAddress V4(const char* text) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  v4->sin_family = AF_INET;
  CHECK(::inet_pton(AF_INET, text, &v4->sin_addr) == 1);
  address.length = sizeof *v4;
  return address;
}

SocketAddress V6(const char* text) {
  SocketAddress address;
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  v6->sin6_family = AF_INET6;
  CHECK(::inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
  address.length = sizeof *v6;
  return address;
}

Found Addresses(std::vector<SocketAddress> addresses) { return addresses; }

std::string Problem(const Found& found, const std::string& address = "10.0.0.7") {
  return OwnNameProblem("train-1-0", "node-3", address, found);
}

const std::string kRemedy =
    "; its peers cannot reach a program that uses the name, such as PyTorch with gloo: add the name to "
    "/etc/hosts, or set GLOO_SOCKET_IFNAME";

TEST(OwnName, AnAddressThatPeersCanReachIsGood) {
  EXPECT_EQ(Problem(Addresses({V4("10.0.0.7")})), "");
  EXPECT_EQ(Problem(Addresses({V6("fd00::7")})), "");
  EXPECT_EQ(Problem(Addresses({V6("::1"), V4("127.0.1.1"), V4("10.0.0.7")})), "");
}

TEST(OwnName, ANameWithoutAnAddressIsNamed) {
  EXPECT_EQ(Problem(Error{Code::kUnavailable, "look up node-3: Domain name not found"}),
            "train-1-0 cannot resolve its own name node-3 (look up node-3: Domain name not found)" + kRemedy);
}

TEST(OwnName, LoopbackIsNoAddressForPeers) {
  const std::string text = "train-1-0 resolves its own name node-3 to loopback only" + kRemedy;
  EXPECT_EQ(Problem(Addresses({V4("127.0.1.1")})), text);
  EXPECT_EQ(Problem(Addresses({V4("127.0.0.1"), V6("::1")})), text);
}

TEST(OwnName, OnOneMachineLoopbackIsGood) {
  EXPECT_EQ(Problem(Addresses({V4("127.0.1.1")}), "127.0.0.1"), "");
  EXPECT_EQ(Problem(Error{Code::kUnavailable, "look up node-3: timeout"}, "::1"), "");
}

TEST(OwnName, TheLookupRunsOnce) {
  OwnNameCheck check;
  EXPECT_EQ(check.fd(), -1);
  check.Start("train-1-0", "127.0.0.1");
  EXPECT_GE(check.fd(), 0);
  while (check.fd() >= 0) {
    pollfd wait = {check.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 60'000), 1);
    check.Advance();
  }
  check.Start("train-1-0", "127.0.0.1");
  EXPECT_EQ(check.fd(), -1);
}

}  // namespace
}  // namespace ringmaster::agent
