// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/peer_check.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace ringmaster::agent {
namespace {

constexpr int kBacklog = 1024;      // the kernel takes at most net.core.somaxconn
constexpr size_t kMaxReason = 200;  // bytes

Fd NewEpoll() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  CHECK(epoll.valid(), "epoll_create1: error {}", errno);
  return epoll;
}

// The connection ends with a reset when it is closed, and no TIME_WAIT follows.
void ResetOnClose(int fd) {
  const linger none = {1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// Reads "host:port" or "[v6]:port".
std::optional<HostPort> ParseAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parsed{address.substr(0, colon)};
  if (parsed.host.front() == '[' && parsed.host.back() == ']')
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  const char* const end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, parsed.port);
  if (error != std::errc() || rest != end || parsed.port == 0 || parsed.host.empty()) return std::nullopt;
  return parsed;
}

std::optional<SocketAddress> NumericAddress(const HostPort& at) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, at.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(at.port);
    address.length = sizeof *v4;
    return address;
  }
  if (::inet_pton(AF_INET6, at.host.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(at.port);
  address.length = sizeof *v6;
  return address;
}

std::string WordsOf(int error_number) { return std::strerror(error_number); }

// The message has names and reasons in printable ASCII.
std::string Plain(const std::string& text) {
  std::string plain = text.substr(0, kMaxReason);
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return plain;
}

std::string SecondsText(Duration limit) {
  return limit % seconds(1) == Duration{0} ? fmt::format("{} s", ToMs(limit) / 1000)
                                           : fmt::format("{} ms", ToMs(limit));
}

}  // namespace

// ---- PeerListener

Result<PeerListener> PeerListener::Open(int32_t port) {
  PeerListener listener;
  listener.epoll_ = NewEpoll();
  RM_TRY(listener.Listen(AF_INET, port));
  // A node may have no IPv6. Where pods have only that, peers report what they get.
  (void)listener.Listen(AF_INET6, port);
  return listener;
}

Status PeerListener::Listen(int family, int32_t port) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoError("socket", errno);
  const int on = 1;
  // The port is reserved, and connections of an earlier listener may linger.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage any = {};
  socklen_t size = sizeof(sockaddr_in);
  any.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    reinterpret_cast<sockaddr_in6*>(&any)->sin6_port = htons(static_cast<uint16_t>(port));
    size = sizeof(sockaddr_in6);
  } else {
    reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(static_cast<uint16_t>(port));
  }
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0)
    return ErrnoError(fmt::format("listen on port {}", port), errno);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = socket.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
    return ErrnoError("epoll_ctl", errno);
  listeners_.push_back(std::move(socket));
  return Ok();
}

void PeerListener::OnReadable() {
  std::array<epoll_event, 64> events = {};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const bool listens = std::any_of(listeners_.begin(), listeners_.end(),
                                     [fd](const Fd& listener) { return listener.get() == fd; });
    if (listens) {
      Accept(fd);
    } else if (connections_.erase(fd) > 0) {  // closed by the peer, or not a check
      std::erase(order_, fd);
    }
  }
}

void PeerListener::Accept(int listener) {
  while (true) {
    Fd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool full = !connection.valid() && (errno == EMFILE || errno == ENFILE);
    if (!connection.valid() && !full) return;
    if ((full || order_.size() >= kMaxConnections) && !order_.empty()) {
      connections_.erase(order_.front());
      order_.pop_front();
    }
    if (full) {
      // It would be readable without end.
      if (order_.empty()) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener, nullptr);
      return;
    }
    const int fd = connection.get();
    ResetOnClose(fd);
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) continue;
    connections_[fd] = std::move(connection);
    order_.push_back(fd);
  }
}

// ---- PeerDialer

PeerDialer::PeerDialer(DialLimits limits) : limits_(limits), epoll_(NewEpoll()) {}

void PeerDialer::Start(std::vector<std::string> addresses, size_t self, Time now) {
  Cancel();
  running_ = true;
  addresses_ = std::move(addresses);
  // Each agent begins behind itself: otherwise all of them would connect to the first ones together.
  for (size_t i = 1; i < addresses_.size(); ++i) waiting_.push_back((self + i) % addresses_.size());
  Fill(now);
}

void PeerDialer::Cancel() {
  running_ = false;
  waiting_.clear();
  attempts_.clear();
  unreachable_.clear();
}

Time PeerDialer::deadline() const {
  if (!running_) return kNever;
  if (attempts_.empty()) return Time{};  // the result is there
  return std::min_element(attempts_.begin(), attempts_.end(),
                          [](const auto& a, const auto& b) { return a.second.deadline < b.second.deadline; })
      ->second.deadline;
}

std::optional<std::vector<rendezvous::UnreachablePeer>> PeerDialer::Advance(Time now) {
  if (!running_) return std::nullopt;
  std::array<epoll_event, 64> events = {};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t peer = events[i].data.u64;  // a copy: the kernel's struct is packed
    const auto it = attempts_.find(peer);
    if (it == attempts_.end()) continue;
    if (it->second.socket.valid())
      OnConnected(it->second);
    else
      OnResolved(it->second);
  }
  std::vector<size_t> late;
  for (const auto& [peer, attempt] : attempts_) {
    if (now >= attempt.deadline) late.push_back(peer);
  }
  for (const size_t peer : late) Finish(attempts_.at(peer), "timed out after " + SecondsText(limits_.each));
  Fill(now);
  if (!attempts_.empty()) return std::nullopt;
  std::vector<rendezvous::UnreachablePeer> found = std::move(unreachable_);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.peer < b.peer; });
  Cancel();
  return found;
}

void PeerDialer::Fill(Time now) {
  while (unreachable_.size() < rendezvous::kMaxUnreachablePeers && attempts_.size() < limits_.at_once &&
         !waiting_.empty()) {
    const size_t peer = waiting_.front();
    waiting_.pop_front();
    Attempt& attempt = attempts_[peer];
    attempt.peer = peer;
    attempt.deadline = now + limits_.each;
    Begin(attempt);
  }
  if (unreachable_.size() < rendezvous::kMaxUnreachablePeers) return;
  waiting_.clear();
  attempts_.clear();
}

// These end with Finish when the outcome is known, which invalidates the attempt.

void PeerDialer::Begin(Attempt& attempt) {
  const std::string& address = addresses_[attempt.peer];
  const std::optional<HostPort> at = ParseAddress(address);
  if (!at) return Finish(attempt, "its address is not host:port");
  if (std::optional<SocketAddress> numeric = NumericAddress(*at)) {
    attempt.addresses.push_back(*numeric);
    return ConnectNext(attempt);
  }
  attempt.resolver.Start(at->host, std::to_string(at->port));
  Watch(attempt.resolver.fd(), EPOLLIN, attempt.peer);
}

void PeerDialer::OnResolved(Attempt& attempt) {
  std::optional<Result<std::vector<SocketAddress>>> answer = attempt.resolver.Advance();
  if (!answer) return;
  if (!answer->ok()) return Finish(attempt, answer->error().message);
  attempt.addresses = std::move(*answer).value();
  if (attempt.addresses.empty()) return Finish(attempt, "its name has no address");
  ConnectNext(attempt);
}

void PeerDialer::OnConnected(Attempt& attempt) {
  int why = 0;
  socklen_t length = sizeof why;
  if (::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &why, &length) != 0) why = errno;
  // A reset after the connection was complete: the listener has many connections.
  if (why == 0 || why == ECONNRESET) return Finish(attempt, "");
  attempt.why = WordsOf(why);
  ConnectNext(attempt);
}

void PeerDialer::ConnectNext(Attempt& attempt) {
  while (!attempt.addresses.empty()) {
    const SocketAddress address = attempt.addresses.front();
    attempt.addresses.erase(attempt.addresses.begin());
    attempt.socket = Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!attempt.socket.valid()) return Finish(attempt, "socket: " + WordsOf(errno));
    ResetOnClose(attempt.socket.get());
    const int rc =
        ::connect(attempt.socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
    if (rc == 0) return Finish(attempt, "");
    if (errno == EINPROGRESS) return Watch(attempt.socket.get(), EPOLLOUT, attempt.peer);
    attempt.why = WordsOf(errno);
  }
  Finish(attempt, attempt.why);
}

// `why`: empty if it is reachable.
void PeerDialer::Finish(const Attempt& attempt, const std::string& why) {
  const size_t peer = attempt.peer;
  const std::string reason = Plain(why);  // may be a member of the attempt
  attempts_.erase(peer);
  if (!reason.empty() && unreachable_.size() < rendezvous::kMaxUnreachablePeers)
    unreachable_.push_back({static_cast<int32_t>(peer), reason});
}

void PeerDialer::Watch(int fd, uint32_t events, size_t peer) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = peer;
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: error {}", errno);
}

}  // namespace ringmaster::agent
