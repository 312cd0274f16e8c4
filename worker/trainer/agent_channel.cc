// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/agent_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/exit_codes.h"
#include "base/log.h"
#include "rendezvous/codec.h"

namespace ringmaster::trainer {

using rendezvous::Exit;
using rendezvous::Generation;
using rendezvous::Message;
using rendezvous::NewGeneration;
using rendezvous::Prepare;
using rendezvous::Urgency;

AgentChannel::AgentChannel(Fd fd, std::function<void(Generation)> abort)
    : fd_(std::move(fd)), abort_(std::move(abort)) {
  reader_ = std::thread([this] { ReadLoop(); });
}

AgentChannel::~AgentChannel() {
  closing_ = true;
  ::shutdown(fd_.get(), SHUT_RD);
  reader_.join();
}

void AgentChannel::Send(const Message& message) {
  const std::string frame = rendezvous::Encode(message);
  const MutexLock lock(send_mutex_);
  size_t done = 0;
  while (done < frame.size()) {
    const ssize_t put = ::send(fd_.get(), frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;  // the agent has died; the reader thread exits the process
    done += static_cast<size_t>(put);
  }
}

std::optional<Message> AgentChannel::WaitForOrder(std::optional<Duration> limit) {
  const Time deadline = limit.has_value() ? Now() + *limit : kNever;
  MutexLock lock(mutex_);
  while (!order_.has_value() && !boundary_order_.has_value()) {
    if (!arrived_.WaitUntil(lock, deadline) && !order_.has_value() && !boundary_order_.has_value())
      return std::nullopt;
  }
  if (order_.has_value()) return std::exchange(order_, std::nullopt);
  return *std::exchange(boundary_order_, std::nullopt);
}

int AgentChannel::ReportFatal(int exit_code, const std::string& message) {
  Send(rendezvous::Fatal{exit_code, message});
  {
    const MutexLock lock(mutex_);
    if (exiting_) return exit_code;  // the job has ended already, so no answer comes
  }
  const Time deadline = Now() + seconds(10);
  while (Now() < deadline) {
    const auto order = WaitForOrder(seconds(1));
    if (order.has_value() && std::holds_alternative<Exit>(*order)) return std::get<Exit>(*order).code;
  }
  return exit_code;
}

bool AgentChannel::Begin(Generation generation) {
  const MutexLock lock(mutex_);
  if (exiting_ || aborted_ > generation) return false;
  const bool formed = order_.has_value() && std::holds_alternative<NewGeneration>(*order_);
  if (formed && std::get<NewGeneration>(*order_).generation > generation) return false;
  cancel_ = false;
  // What is pending now is a newer boundary Prepare, or nothing.
  boundary_ = order_.has_value() || boundary_order_.has_value();
  return true;
}

void AgentChannel::ReadLoop() {
  rendezvous::Decoder decoder;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (closing_) return;
      // Without its agent nothing can report the death of this trainer to its peers.
      log::Error("the agent has closed the channel; exiting");
      ::_exit(kExitStale);
    }
    decoder.Feed({buffer, static_cast<size_t>(got)});
    while (true) {
      auto message = decoder.Next();
      if (!message.ok()) {
        log::Error("agent channel: {}", message.error().message);
        ::_exit(kExitInternal);
      }
      if (!message->has_value()) break;
      Take(*std::move(*message));
    }
  }
}

void AgentChannel::Take(Message message) {
  Generation abort_up_to = 0;
  {
    const MutexLock lock(mutex_);
    if (exiting_) return;
    if (std::holds_alternative<Exit>(message)) {
      exiting_ = true;
      cancel_ = true;
      abort_up_to = UINT64_MAX;
    } else if (const auto* prepare = std::get_if<Prepare>(&message)) {
      // Equal is possible: a boundary Prepare may become an abort of the same generation.
      if (prepare->generation < newest_) return;
      newest_ = prepare->generation;
      if (prepare->urgency == Urgency::kAbort) {
        cancel_ = true;
        aborted_ = prepare->generation;
        abort_up_to = prepare->generation - 1;
      } else {
        boundary_ = true;
        if (order_.has_value() && std::holds_alternative<NewGeneration>(*order_)) {
          boundary_order_ = *prepare;
          return;
        }
      }
    } else if (const auto* formed = std::get_if<NewGeneration>(&message)) {
      if (formed->generation < newest_) return;
      newest_ = formed->generation;
    } else {
      return;  // not an order
    }
    boundary_order_.reset();
    order_ = std::move(message);
  }
  if (abort_up_to > 0) abort_(abort_up_to);
  arrived_.NotifyAll();
}

}  // namespace ringmaster::trainer
