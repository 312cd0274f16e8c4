// SPDX-License-Identifier: Apache-2.0

// CoordinatorLink is a connection to the coordinator: name resolution, connect, TLS, frames; or, for the
// agent of a slot, a connection to the pod's relay. A relay that is gone restarts at once. If it does not
// take a connection, its supervisor must be stopped, and the next connection is a direct one. It never
// blocks; its user decides when to reconnect. Not thread-safe.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "worker/agent/net/frame_stream.h"
#include "worker/agent/net/resolver.h"

namespace ringmaster::agent {

class CoordinatorLink {
 public:
  static constexpr Duration kConnectLimit = seconds(3);  // including name resolution and handshake
  static constexpr Duration kRelayLimit = seconds(2);    // for the relay to take a connection
  // The connection ends when sent bytes stay unacknowledged for this long.
  static constexpr int kUserTimeoutMs = 2000;

  // `ca_file` empty: plain TCP, within one machine. To the relay, it is plain in any case. `doorbell`: of the
  // relay (doorbell.h); -1: there is none. REQUIRES: `doorbell` outlives the link.
  CoordinatorLink(std::string host, std::string port, std::string ca_file, int doorbell = -1)
      : host_(std::move(host)), port_(std::move(port)), ca_file_(std::move(ca_file)), doorbell_(doorbell) {}

  // Closes the current connection, if any, and starts a new one.
  void Connect(Time now);
  void Close();

  // Returns what to poll for; fd -1: nothing.
  pollfd PollFor() const;
  // When OnReady must be called even without an event.
  Time deadline() const { return deadline_; }

  // Advances by one step. After an error the attempt or the connection has ended: call Next until it is
  // empty, then Close.
  enum class State { kIdle, kResolving, kConnecting, kSecuring, kUp };
  State state() const { return state_; }
  // Whether the current connection is one to the relay.
  bool through_relay() const { return through_relay_; }
  Status OnReady(short revents, Time now);

  // REQUIRES: state() is kUp.
  Status Send(const rendezvous::Message& message) { return stream_->Send(message); }
  Status SendRaw(std::string_view frames) { return stream_->SendRaw(frames); }
  Result<std::optional<rendezvous::Message>> Next() { return stream_->Next(); }
  // As Decoder's functions.
  Result<std::optional<std::string_view>> NextFrame() { return stream_->NextFrame(); }
  const std::vector<int32_t>& slots() const { return stream_->slots(); }
  bool wants_write() const { return stream_ && stream_->wants_write(); }

 private:
  Status OnResolved();
  Status OnConnected();
  Status OnSecuring();

  std::string host_;
  std::string port_;
  std::string ca_file_;
  const int doorbell_;
  bool through_relay_ = false;
  bool relay_absent_ = false;  // it did not take the last connection
  State state_ = State::kIdle;
  Time deadline_ = kNever;
  Resolver resolver_;
  size_t attempt_ = 0;  // cycles through several addresses
  Fd connecting_;
  std::unique_ptr<ByteChannel> securing_;
  std::unique_ptr<FrameStream> stream_;
};

}  // namespace ringmaster::agent
