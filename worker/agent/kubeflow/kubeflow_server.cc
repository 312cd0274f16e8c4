// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/kubeflow/kubeflow_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace ringmaster::agent {
namespace {

constexpr int kMaxWaiting = 16;
constexpr int kMaxReads = 16;      // of a connection per call: other events wait meanwhile
constexpr uint64_t kListener = 0;  // connections have numbers from 1 on
constexpr mode_t kTokenMode = 0600;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

Status Watch(int epoll, int op, int fd, uint32_t events, uint64_t number) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = number;
  if (::epoll_ctl(epoll, op, fd, &event) != 0) return ErrnoError("epoll_ctl", errno);
  return Ok();
}

}  // namespace

Result<KubeflowServer> KubeflowServer::Open(const std::string& job, const std::string& folder,
                                            const std::string& ca_file) {
  KubeflowServer out;
  out.path_ = KubeflowPath(job);
  out.token_file_ = folder + "/kubeflow-token";
  out.ca_file_ = ca_file;
  out.epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  out.listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!out.epoll_.valid() || !out.listener_.valid() || ::bind(out.listener_.get(), generic, size) != 0 ||
      ::listen(out.listener_.get(), kMaxWaiting) != 0 ||
      ::getsockname(out.listener_.get(), generic, &size) != 0)
    return ErrnoError("listen on loopback", errno);
  out.port_ = ntohs(address.sin_port);
  RM_TRY(Watch(out.epoll_.get(), EPOLL_CTL_ADD, out.listener_.get(), EPOLLIN, kListener));
  return out;
}

void KubeflowServer::Begin(const std::string& token, std::vector<std::string>* variables) {
  token_.clear();
  connections_.clear();  // of the last program
  ::unlink(token_file_.c_str());
  const Fd file(::open(token_file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kTokenMode));
  if (!file.valid() || ::write(file.get(), token.data(), token.size()) != static_cast<ssize_t>(token.size()))
    return log::Warn("no reports to Kubeflow Trainer: {}", ErrnoError("write " + token_file_, errno).message);
  token_ = token;
  variables->push_back(fmt::format("{}=http://127.0.0.1:{}{}", kUrlVariable, port_, path_));
  variables->push_back("KUBEFLOW_TRAINER_SERVER_TOKEN=" + token_file_);
  if (!ca_file_.empty()) variables->push_back("KUBEFLOW_TRAINER_SERVER_CA_CERT=" + ca_file_);
}

Time KubeflowServer::deadline() const {
  return connections_.empty() ? kNever : connections_.begin()->second.deadline;
}

void KubeflowServer::Advance(Time now, const std::function<void(const KubeflowStatus&)>& take) {
  std::array<epoll_event, kMaxConnections + 1> events = {};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t number = events[i].data.u64;  // a copy: the kernel's struct is packed
    if (number == kListener) {
      Accept(now);
      continue;
    }
    const auto it = connections_.find(number);
    if (it != connections_.end() && !Serve(number, it->second, take)) connections_.erase(it);
  }
  // All have the same limit, so the oldest one is due first.
  while (now >= deadline()) connections_.erase(connections_.begin());
}

void KubeflowServer::Accept(Time now) {
  for (size_t i = 0; i < kMaxConnections; ++i) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool full = !socket.valid() && (errno == EMFILE || errno == ENFILE);
    if (!socket.valid() && !full) return;
    if ((full || connections_.size() == kMaxConnections) && !connections_.empty()) {
      connections_.erase(connections_.begin());
    } else if (full) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);  // it would be readable without end
    }
    if (full) return;
    const uint64_t number = ++newest_;
    if (!Watch(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN, number).ok()) continue;
    connections_.emplace(number, Connection{std::move(socket), now + kLimit});
  }
}

// These return false when the connection has ended.

bool KubeflowServer::Serve(uint64_t number, Connection& connection,
                           const std::function<void(const KubeflowStatus&)>& take) {
  const bool open = Read(connection);
  if (connection.reader.done() && !std::exchange(connection.answered, true)) {
    KubeflowAnswer answer = AnswerKubeflow(connection.reader, path_, token_);
    if (answer.status) take(*answer.status);
    connection.unsent += answer.text;
  } else if (connection.reader.TakeExpectation()) {
    connection.unsent += kContinue;
  }
  return Write(number, connection) && open;
}

bool KubeflowServer::Read(Connection& connection) {
  std::array<char, size_t{4} << 10> bytes;
  for (int i = 0; i < kMaxReads; ++i) {
    const ssize_t got = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    connection.reader.Feed({bytes.data(), static_cast<size_t>(got)});
  }
  return true;
}

bool KubeflowServer::Write(uint64_t number, Connection& connection) {
  while (!connection.unsent.empty()) {
    const ssize_t sent =
        ::send(connection.socket.get(), connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (sent < 0) break;
    connection.unsent.erase(0, static_cast<size_t>(sent));
  }
  // The client closes the connection: if this end did while bytes are on their way to it, the client would
  // get a reset in place of the answer.
  if (connection.answered && connection.unsent.empty()) ::shutdown(connection.socket.get(), SHUT_WR);
  const bool wants_write = !connection.unsent.empty();
  if (std::exchange(connection.wants_write, wants_write) == wants_write) return true;
  const uint32_t events = EPOLLIN | (wants_write ? EPOLLOUT : 0U);
  return Watch(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), events, number).ok();
}

}  // namespace ringmaster::agent
