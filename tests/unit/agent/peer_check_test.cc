// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/peer_check.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker/agent/shell/program_process.h"

namespace ringmaster::agent {
namespace {

using Unreachable = std::vector<rendezvous::UnreachablePeer>;

constexpr Duration kDeadline = seconds(20);

sockaddr_in Loopback(int32_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

std::string AddressOf(int32_t port) { return "127.0.0.1:" + std::to_string(port); }

// Whether a program that sets no option can bind the port.
bool CanBind(int32_t port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

Fd ConnectedTo(int32_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(port);
  CHECK(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

ReservedPort Reserve() { return std::move(ReservedPort::Reserve(0)).value(); }

// Runs the dialer, and the listener if there is one, as the loop of the agent does.
Unreachable Finish(PeerDialer& dialer, PeerListener* listener = nullptr) {
  const Time end = Now() + kDeadline;
  while (Now() < end) {
    if (auto found = dialer.Advance(Now())) return *std::move(found);
    pollfd polled[] = {{dialer.fd(), POLLIN, 0}, {listener != nullptr ? listener->fd() : -1, POLLIN, 0}};
    const auto wait = std::clamp<Duration>(dialer.deadline() - Now(), {}, seconds(1));
    ::poll(polled, 2, static_cast<int>(ToMs(wait)) + 1);
    if (polled[1].revents != 0) listener->OnReadable();
  }
  ADD_FAILURE() << "the check does not end";
  return {};
}

Unreachable Check(std::vector<std::string> addresses, PeerListener* listener = nullptr,
                  DialLimits limits = {}) {
  PeerDialer dialer(limits);
  addresses.emplace_back("of this agent");
  const size_t self = addresses.size() - 1;
  dialer.Start(std::move(addresses), self, Now());
  return Finish(dialer, listener);
}

TEST(PeerCheck, AListeningPeerIsReachableAndItsPortCanBeBoundAfterwards) {
  std::optional<ReservedPort> reserved = Reserve();
  const int32_t port = reserved->port();
  Result<PeerListener> listener = PeerListener::Open(port);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  EXPECT_EQ(Check({AddressOf(port), AddressOf(port)}, &*listener), Unreachable{});
  { const PeerListener closed = std::move(*listener); }
  EXPECT_FALSE(CanBind(port)) << "the port is still reserved";
  reserved.reset();
  EXPECT_TRUE(CanBind(port));
}

TEST(PeerCheck, TheListenerLeavesNoConnectionBehind) {
  // Of each kind one: accepted and open, accepted and closed by the peer, and not accepted.
  ReservedPort reserved = Reserve();
  const int32_t port = reserved.port();
  Fd open, waiting;
  {
    PeerListener listener = std::move(PeerListener::Open(port)).value();
    open = ConnectedTo(port);
    Fd closed = ConnectedTo(port);
    listener.OnReadable();
    EXPECT_EQ(listener.connections(), 2u);
    closed.Reset();
    pollfd readable = {listener.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 10'000), 1);
    listener.OnReadable();
    EXPECT_EQ(listener.connections(), 1u);
    waiting = ConnectedTo(port);
  }
  reserved = Reserve();
  EXPECT_TRUE(CanBind(port));
}

TEST(PeerCheck, APortWithoutAListenerIsRefused) {
  const ReservedPort reserved = Reserve();
  EXPECT_EQ(Check({AddressOf(reserved.port())}), (Unreachable{{0, "Connection refused"}}));
}

TEST(PeerCheck, APeerThatDoesNotAnswerTimesOut) {
  // With a full queue, a listener drops further connections.
  const Fd full(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(full.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  ASSERT_EQ(::getsockname(full.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int32_t hole = ntohs(address.sin_port);
  const Fd only = ConnectedTo(hole);

  const ReservedPort reserved = Reserve();
  PeerListener listener = std::move(PeerListener::Open(reserved.port())).value();
  EXPECT_EQ(Check({AddressOf(reserved.port()), AddressOf(hole)}, &listener, {.each = milliseconds(50)}),
            (Unreachable{{1, "timed out after 50 ms"}}));
}

TEST(PeerCheck, ManyPeersAreTriedSomeAtATime) {
  const ReservedPort reserved = Reserve();
  PeerListener listener = std::move(PeerListener::Open(reserved.port())).value();
  EXPECT_EQ(Check(std::vector<std::string>(300, AddressOf(reserved.port())), &listener, {.at_once = 7}),
            Unreachable{});
}

TEST(PeerCheck, StopsWhenManyPeersAreUnreachable) {
  const ReservedPort reserved = Reserve();
  EXPECT_EQ(Check(std::vector<std::string>(300, AddressOf(reserved.port()))).size(),
            rendezvous::kMaxUnreachablePeers);
}

TEST(PeerCheck, NamesAreLookedUp) {
  const ReservedPort reserved = Reserve();
  PeerListener listener = std::move(PeerListener::Open(reserved.port())).value();
  EXPECT_EQ(Check({"localhost:" + std::to_string(reserved.port())}, &listener), Unreachable{});
}

TEST(PeerCheck, ListensOnIpv6) {
  const ReservedPort reserved = Reserve();
  const Fd v6(::socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  if (!v6.valid() || ::bind(v6.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    GTEST_SKIP() << "this machine has no IPv6";
  PeerListener listener = std::move(PeerListener::Open(reserved.port())).value();
  EXPECT_EQ(Check({"[::1]:" + std::to_string(reserved.port())}, &listener), Unreachable{});
}

TEST(PeerCheck, BadAddressesAreNamed) {
  const std::string what = "its address is not host:port";
  EXPECT_EQ(Check({"", "host", ":80", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:80x", "[]:80"}),
            (Unreachable{{0, what}, {1, what}, {2, what}, {3, what}, {4, what}, {5, what}, {6, what}}));
  EXPECT_EQ(Check({"255.255.255.255:80"}), (Unreachable{{0, "Network is unreachable"}}));
}

TEST(PeerCheck, ARunReplacesTheOneBefore) {
  const ReservedPort reserved = Reserve();
  PeerListener listener = std::move(PeerListener::Open(reserved.port())).value();
  PeerDialer dialer;
  EXPECT_EQ(dialer.deadline(), kNever);
  dialer.Start({"of this agent"}, 0, Now());
  EXPECT_EQ(Finish(dialer), Unreachable{}) << "no peer";
  dialer.Start({AddressOf(reserved.port()), "of this agent"}, 1, Now());
  dialer.Start({"of this agent", AddressOf(reserved.port())}, 0, Now());
  EXPECT_EQ(Finish(dialer, &listener), Unreachable{}) << "the first run is cancelled";
  EXPECT_FALSE(dialer.running());
  EXPECT_EQ(dialer.fd(), -1);
}

TEST(PeerCheck, AListenerHoldsABoundedNumberOfConnections) {
  const ReservedPort reserved = Reserve();
  PeerListener listener = std::move(PeerListener::Open(reserved.port())).value();
  std::vector<Fd> clients;
  for (size_t i = 0; i < PeerListener::kMaxConnections + 10; ++i)
    clients.push_back(ConnectedTo(reserved.port()));
  listener.OnReadable();
  EXPECT_EQ(listener.connections(), PeerListener::kMaxConnections);
  EXPECT_EQ(Check({AddressOf(reserved.port())}, &listener), Unreachable{});
}

TEST(PeerCheck, APortThatAnotherProcessListensOnIsNamed) {
  const ReservedPort reserved = Reserve();
  const PeerListener first = std::move(PeerListener::Open(reserved.port())).value();
  const Result<PeerListener> second = PeerListener::Open(reserved.port());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            "listen on port " + std::to_string(reserved.port()) + ": Address already in use");
}

}  // namespace
}  // namespace ringmaster::agent
