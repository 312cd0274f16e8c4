// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/coordinator_link.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "worker/agent/shell/doorbell.h"

namespace ringmaster::agent {
namespace {

void SetOption(int fd, int level, int option, int value) {
  // Best effort: without the option the link works, but detects failures later.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

void CoordinatorLink::Connect(Time now) {
  Close();
  through_relay_ = doorbell_ >= 0 && !std::exchange(relay_absent_, false);
  deadline_ = now + (through_relay_ ? kRelayLimit : kConnectLimit);
  if (!through_relay_) {
    state_ = State::kResolving;
    resolver_.Start(host_, port_);
    return;
  }
  state_ = State::kConnecting;
  Result<Fd> relay = RingDoorbell(doorbell_);
  if (relay.ok()) connecting_ = std::move(relay).value();  // otherwise the deadline ends the attempt
}

void CoordinatorLink::Close() {
  resolver_.Cancel();
  connecting_.Reset();
  securing_.reset();
  stream_.reset();
  state_ = State::kIdle;
  deadline_ = kNever;
}

pollfd CoordinatorLink::PollFor() const {
  switch (state_) {
    case State::kIdle:
      break;
    case State::kResolving:
      return {resolver_.fd(), POLLIN, 0};
    case State::kConnecting:
      return {connecting_.get(), POLLOUT, 0};
    case State::kSecuring:
      // A handshake always waits for the peer: the agent's part fits into the socket buffer.
      return {securing_->fd(), POLLIN, 0};
    case State::kUp:
      return {stream_->fd(), static_cast<short>(stream_->wants_write() ? POLLIN | POLLOUT : POLLIN), 0};
  }
  return {-1, 0, 0};
}

Status CoordinatorLink::OnReady(short revents, Time now) {
  if (revents == 0) {
    if (now < deadline_) return Ok();
    deadline_ = kNever;
    if (!through_relay_) return Error{Code::kDeadlineExceeded, "no connection in time"};
    if (state_ == State::kUp && IsDoorbellAnswered(doorbell_)) return Ok();
    relay_absent_ = true;
    return Error{Code::kDeadlineExceeded, "the relay does not answer"};
  }
  switch (state_) {
    case State::kIdle:
      return Ok();
    case State::kResolving:
      return OnResolved();
    case State::kConnecting:
      return OnConnected();
    case State::kSecuring:
      return OnSecuring();
    case State::kUp:
      break;
  }
  if ((revents & POLLOUT) != 0) RM_TRY(stream_->Flush());
  if ((revents & (POLLIN | POLLHUP | POLLERR)) != 0) return stream_->Receive();
  return Ok();
}

Status CoordinatorLink::OnResolved() {
  std::optional<Result<std::vector<SocketAddress>>> answer = resolver_.Advance();
  if (!answer) return Ok();
  RM_ASSIGN(const std::vector<SocketAddress> addresses, std::move(*answer));
  if (addresses.empty()) return Error{Code::kUnavailable, "look up " + host_ + ": no address"};
  const SocketAddress& address = addresses[attempt_++ % addresses.size()];
  connecting_ = Fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connecting_.valid()) return ErrnoError("socket", errno);
  const int rc =
      ::connect(connecting_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
  if (rc != 0 && errno != EINPROGRESS) return ErrnoError("connect to " + host_, errno);
  state_ = State::kConnecting;
  return Ok();
}

Status CoordinatorLink::OnConnected() {
  int why = 0;
  socklen_t length = sizeof why;
  if (::getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &why, &length) != 0) why = errno;
  if (why != 0) return ErrnoError("connect to " + host_, why);
  SetOption(connecting_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(connecting_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (through_relay_ || ca_file_.empty()) {
    securing_ = MakePlainChannel(std::move(connecting_));
  } else {
    RM_ASSIGN(securing_, MakeTlsChannel(std::move(connecting_), ca_file_, host_));
  }
  state_ = State::kSecuring;
  return OnSecuring();
}

Status CoordinatorLink::OnSecuring() {
  RM_ASSIGN(const bool secure, securing_->Handshake());
  if (!secure) return Ok();
  stream_ = std::make_unique<FrameStream>(std::move(securing_));
  state_ = State::kUp;
  if (!through_relay_) deadline_ = kNever;
  return Ok();
}

}  // namespace ringmaster::agent
