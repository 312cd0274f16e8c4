// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/resolver.h"

#include <ares.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <utility>

namespace ringmaster::agent {
namespace {

// A server that does not answer is asked again, or the next one, after this long. The link gives up earlier
// than all tries together and starts a new lookup.
constexpr int kServerTimeoutMs = 1000;
constexpr int kTries = 3;

}  // namespace

// Holds the channel of one lookup. Its sockets and the timer of its timeouts are in one epoll set, so that
// the loop polls one descriptor. A new channel for each lookup reads the files again.
struct Resolver::Lookup {
  std::string host;
  Fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  Fd timer{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
  ares_channel channel = nullptr;
  int status = ARES_SUCCESS;
  bool done = false;
  std::vector<SocketAddress> addresses;

  Lookup() = default;
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;
  ~Lookup() {
    if (channel != nullptr) ::ares_destroy(channel);
  }

  void Start(const std::string& port) {
    Watch(timer.get(), EPOLLIN);
    ares_options options = {};
    options.timeout = kServerTimeoutMs;
    options.tries = kTries;
    options.sock_state_cb = [](void* self, ares_socket_t fd, int read, int write) {
      static_cast<Lookup*>(self)->Watch(fd, (read != 0 ? EPOLLIN : 0U) | (write != 0 ? EPOLLOUT : 0U));
    };
    options.sock_state_cb_data = this;
    const int rc =
        ::ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    if (rc != ARES_SUCCESS) {
      channel = nullptr;
      Finish(rc, nullptr);
      return;
    }
    uint16_t number = 0;
    std::from_chars(port.data(), port.data() + port.size(), number);
    port_ = htons(number);
    ares_addrinfo_hints hints = {};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    ::ares_getaddrinfo(
        channel, host.c_str(), nullptr, &hints,
        [](void* self, int result, int, ares_addrinfo* found) {
          static_cast<Lookup*>(self)->Finish(result, found != nullptr ? found->nodes : nullptr);
          if (found != nullptr) ::ares_freeaddrinfo(found);
        },
        this);
    if (!done) ArmTimer();
  }

  void Advance() {
    uint64_t expired = 0;
    [[maybe_unused]] const ssize_t got = ::read(timer.get(), &expired, sizeof expired);
    std::array<epoll_event, 8> events = {};
    const int count = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count && !done; ++i) {
      const int fd = events[i].data.fd;
      if (fd == timer.get()) continue;
      const bool readable = (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0;
      const bool writable = (events[i].events & EPOLLOUT) != 0;
      ::ares_process_fd(channel, readable ? fd : ARES_SOCKET_BAD, writable ? fd : ARES_SOCKET_BAD);
    }
    if (!done) ::ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // the timeouts
    if (!done) ArmTimer();
  }

 private:
  // Changes what the epoll set watches a descriptor for; 0: nothing.
  void Watch(int fd, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    if (events == 0) {
      ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
    } else if (::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event);
    }
  }

  void ArmTimer() {
    timeval limit = {kServerTimeoutMs / 1000, 0};
    timeval next = {};
    const timeval* wait = ::ares_timeout(channel, &limit, &next);
    SetTimer({wait->tv_sec, wait->tv_usec * 1000});
  }

  void SetTimer(timespec in) {
    if (in.tv_sec == 0 && in.tv_nsec == 0) in.tv_nsec = 1;  // zero would disarm it
    const itimerspec spec = {{}, in};
    ::timerfd_settime(timer.get(), 0, &spec, nullptr);
  }

  void Finish(int result, const ares_addrinfo_node* found) {
    status = result;
    done = true;
    for (; found != nullptr; found = found->ai_next) {
      SocketAddress address;
      std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
      address.length = found->ai_addrlen;
      if (found->ai_family == AF_INET) reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = port_;
      if (found->ai_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = port_;
      addresses.push_back(address);
    }
    SetTimer({});  // fd() becomes readable, also when the lookup ended within Start
  }

  in_port_t port_ = 0;  // in network byte order
};

Resolver::Resolver() = default;
Resolver::~Resolver() = default;
Resolver::Resolver(Resolver&&) noexcept = default;
Resolver& Resolver::operator=(Resolver&&) noexcept = default;

void Resolver::Start(const std::string& host, const std::string& port) {
  lookup_ = std::make_unique<Lookup>();
  lookup_->host = host;
  lookup_->Start(port);
}

void Resolver::Cancel() { lookup_.reset(); }

int Resolver::fd() const { return lookup_ ? lookup_->epoll.get() : -1; }

std::optional<Result<std::vector<SocketAddress>>> Resolver::Advance() {
  if (!lookup_->done) lookup_->Advance();
  if (!lookup_->done) return std::nullopt;
  const std::unique_ptr<Lookup> ended = std::move(lookup_);
  if (ended->status != ARES_SUCCESS) {
    return Error{Code::kUnavailable,
                 fmt::format("look up {}: {}", ended->host, ::ares_strerror(ended->status))};
  }
  return std::move(ended->addresses);
}

}  // namespace ringmaster::agent
