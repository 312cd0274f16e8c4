// SPDX-License-Identifier: Apache-2.0

// The agent's one connection to the coordinator: look-up, connect, TLS, frames. Non-blocking, main thread
// only. When to try again is the member core's business.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "worker/agent/frame_stream.h"
#include "worker/agent/resolver.h"

namespace ringmaster::agent {

class CoordinatorLink {
 public:
  static constexpr Duration kConnectLimit = seconds(3);  // look-up and handshake included
  // Sent bytes that the other host does not acknowledge for this long end the connection.
  static constexpr int kUserTimeoutMs = 2000;

  // `ca_file` empty: plain TCP, within one machine.
  CoordinatorLink(std::string host, std::string port, std::string ca_file)
      : host_(std::move(host)), port_(std::move(port)), ca_file_(std::move(ca_file)) {}

  // Closes what was there and begins anew.
  void Connect(Time now);
  void Close();

  // What to poll for; fd -1: nothing now.
  pollfd PollFor() const;
  // When OnReady must be called even if nothing happened.
  Time deadline() const { return deadline_; }

  // Moves on by one step. An error: the attempt or the connection is over; read Next once more, then Close.
  enum class State { kIdle, kResolving, kConnecting, kSecuring, kUp };
  State state() const { return state_; }
  Status OnReady(short revents, Time now);

  // While kUp.
  Status Send(const rendezvous::Message& message) { return stream_->Send(message); }
  Result<std::optional<rendezvous::Message>> Next() { return stream_->Next(); }
  bool wants_write() const { return stream_ && stream_->wants_write(); }

 private:
  Status OnResolved();
  Status OnConnected();
  Status OnSecuring();

  std::string host_;
  std::string port_;
  std::string ca_file_;
  State state_ = State::kIdle;
  Time deadline_ = kNever;
  Resolver resolver_;
  size_t attempt_ = 0;  // takes turns between several addresses
  Fd connecting_;
  std::unique_ptr<ByteChannel> securing_;
  std::unique_ptr<FrameStream> stream_;
};

}  // namespace ringmaster::agent
