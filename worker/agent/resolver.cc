// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/resolver.h"

#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <system_error>
#include <thread>

namespace ringmaster::agent {

struct Resolver::Pending {
  std::string host;
  std::string port;
  Fd done{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // Written before `done` is signalled, read after.
  int error = 0;
  std::vector<SocketAddress> addresses;

  void LookUp(int flags) {
    addrinfo hints = {};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    if (error != 0) return;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      SocketAddress address;
      std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
      address.length = entry->ai_addrlen;
      addresses.push_back(address);
    }
    ::freeaddrinfo(found);
  }
  void Signal() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(done.get(), &one, sizeof one);
  }
};

void Resolver::Start(const std::string& host, const std::string& port) {
  pending_ = std::make_shared<Pending>();
  pending_->host = host;
  pending_->port = port;
  pending_->LookUp(AI_NUMERICHOST);
  if (pending_->error != EAI_NONAME) {
    pending_->Signal();
    return;
  }
  try {
    std::thread([pending = pending_] {
      pending->LookUp(0);
      pending->Signal();
    }).detach();
  } catch (const std::system_error&) {
    pending_->error = EAI_AGAIN;
    pending_->Signal();
  }
}

int Resolver::fd() const { return pending_ ? pending_->done.get() : -1; }

Result<std::vector<SocketAddress>> Resolver::Take() {
  const std::shared_ptr<Pending> answer = std::move(pending_);
  pending_.reset();
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(answer->done.get(), &count, sizeof count);
  if (answer->error != 0) {
    return Error{Code::kUnavailable,
                 fmt::format("look up {}: {}", answer->host, ::gai_strerror(answer->error))};
  }
  return std::move(answer->addresses);
}

}  // namespace ringmaster::agent
