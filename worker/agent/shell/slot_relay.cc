// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/slot_relay.h"

#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "rendezvous/codec.h"
#include "worker/agent/shell/doorbell.h"

namespace ringmaster::agent {
namespace {

using LinkState = CoordinatorLink::State;

constexpr size_t kMaxWelcomeBytes = 4096;
constexpr Duration kLongestWait = seconds(1);
constexpr Duration kRelayShutdownLimit = seconds(2);

const std::string& PingFrame() {
  static const std::string frame = rendezvous::Encode(rendezvous::Ping{});
  return frame;
}
const std::string& ByeFrame() {
  static const std::string frame = rendezvous::Encode(rendezvous::Bye{});
  return frame;
}

std::string RouteOf(size_t slot) { return rendezvous::EncodeRoute({static_cast<int32_t>(slot)}); }

}  // namespace

SlotRelay::SlotRelay(Options options, std::vector<Fd> doorbells) : options_(std::move(options)) {
  for (Fd& doorbell : doorbells) {
    Slot& slot = slots_.emplace_back();
    slot.doorbell = std::move(doorbell);
    Uplink& uplink = uplinks_.emplace_back();
    uplink.link = std::make_unique<CoordinatorLink>(options_.host, options_.port, options_.ca_file);
  }
}

bool SlotRelay::HasUnsent() const {
  return std::any_of(uplinks_.begin(), uplinks_.end(),
                     [](const Uplink& uplink) { return uplink.link->wants_write(); });
}

bool SlotRelay::HasAgents() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.agent != nullptr; });
}

bool SlotRelay::MayForward(size_t slot) const {
  const CoordinatorLink& link = *uplinks_[UplinkOf(slot)].link;
  if (link.state() != LinkState::kUp || link.wants_write()) return false;
  return shared_ || separate_ || !leader_ || *leader_ == slot;
}

void SlotRelay::RunOnce(Time until, int wake) {
  // Doorbells, agents and uplinks, each by slot; then `wake`.
  const size_t n = slots_.size();
  std::vector<pollfd> polled(3 * n + 1, pollfd{-1, 0, 0});
  ConnectWhereNeeded(Now());
  Time due = std::min(until, ping_at_);
  for (size_t s = 0; s < n; ++s) {
    polled[s] = {slots_[s].doorbell.get(), POLLIN, 0};
    if (const FrameStream* agent = slots_[s].agent.get()) {
      const int events = (MayForward(s) ? POLLIN : 0) | (agent->wants_write() ? POLLOUT : 0);
      if (events != 0) polled[n + s] = {agent->fd(), static_cast<short>(events), 0};
    }
    polled[2 * n + s] = uplinks_[s].link->PollFor();
    due = std::min({due, uplinks_[s].link->deadline()});
    const Uplink& uplink = uplinks_[UplinkOf(s)];
    if (uplink.link->state() == LinkState::kIdle && slots_[s].agent != nullptr)
      due = std::min(due, uplink.connect_at);
  }
  polled[3 * n] = {wake, POLLIN, 0};
  const Duration wait = std::clamp<Duration>(due == kNever ? kLongestWait : due - Now(), {}, kLongestWait);
  const auto whole = std::chrono::duration_cast<seconds>(wait);
  const timespec limit = {whole.count(), (wait - whole).count()};
  if (::ppoll(polled.data(), polled.size(), &limit, nullptr) < 0) {
    CHECK(errno == EINTR, "ppoll: error {}", errno);
    return;
  }
  const Time now = Now();
  for (size_t s = 0; s < n; ++s) OnUplink(s, polled[2 * n + s].revents, now);
  for (size_t s = 0; s < n; ++s) {
    if (polled[s].revents != 0) OnDoorbell(s);
    if (slots_[s].agent != nullptr && slots_[s].agent->fd() == polled[n + s].fd &&
        (polled[n + s].revents & POLLOUT) != 0)
      (void)slots_[s].agent->Flush();
    // Whatever was polled: what was read before may be forwarded now.
    if (slots_[s].agent != nullptr) ReadAgent(s, now);
  }
  if (now >= ping_at_) Ping(now);
}

// ---- the agents

void SlotRelay::OnDoorbell(size_t s) {
  while (true) {
    Fd next = AnswerDoorbell(slots_[s].doorbell.get());
    if (!next.valid()) return;
    EndAgent(s, true, Now());
    slots_[s].agent = std::make_unique<FrameStream>(std::move(next));
  }
}

void SlotRelay::ReadAgent(size_t s, Time now) {
  if (!MayForward(s)) return;
  const Status status = slots_[s].agent->Receive();
  while (slots_[s].agent != nullptr && MayForward(s)) {
    const auto frame = slots_[s].agent->NextFrame();
    if (!frame.ok() || !frame.value()) break;
    Forward(s, **frame, now);
  }
  if (!status.ok() && slots_[s].agent != nullptr && MayForward(s)) EndAgent(s, true, now);
}

void SlotRelay::Forward(size_t s, std::string_view frame, Time now) {
  Slot& slot = slots_[s];
  const size_t u = UplinkOf(s);
  if (!shared_ && !separate_) leader_ = s;
  slot.greeted = true;
  if (frame == PingFrame()) {
    slot.heard = true;
    if (shared_) {
      ping_at_ = std::min(ping_at_, now + kPingInterval);
      return;
    }
  }
  const Status sent =
      uplinks_[u].link->SendRaw(shared_ ? RouteOf(s) + std::string(frame) : std::string(frame));
  if (!sent.ok()) LoseUplink(u, sent.error(), now);
}

// `tell`: the coordinator does not know yet that this agent's connection has ended.
void SlotRelay::EndAgent(size_t s, bool tell, Time now) {
  Slot& slot = slots_[s];
  slot.agent.reset();
  const bool greeted = std::exchange(slot.greeted, false);
  slot.welcome = slot.heard = false;
  if (!tell || !greeted) return;
  const size_t u = UplinkOf(s);
  CoordinatorLink& link = *uplinks_[u].link;
  if (link.state() != LinkState::kUp) return;
  if (!shared_) return LoseUplink(u, {Code::kGone, "its agent has ended"}, now);
  if (const Status sent = link.SendRaw(RouteOf(s) + ByeFrame()); !sent.ok()) LoseUplink(u, sent.error(), now);
}

// ---- the coordinator

void SlotRelay::ConnectWhereNeeded(Time now) {
  for (size_t s = 0; s < slots_.size(); ++s) {
    Uplink& uplink = uplinks_[UplinkOf(s)];
    if (slots_[s].agent == nullptr || uplink.link->state() != LinkState::kIdle || now < uplink.connect_at)
      continue;
    uplink.link->Connect(now);
  }
}

void SlotRelay::OnUplink(size_t u, short revents, Time now) {
  CoordinatorLink& link = *uplinks_[u].link;
  const LinkState before = link.state();
  if (before == LinkState::kIdle) return;
  const Status status = link.OnReady(revents, now);
  if (link.state() == LinkState::kUp && before != LinkState::kUp) log::Info("connected to the coordinator");
  if (before == LinkState::kUp && revents != 0) ReadUplink(u, now);
  if (!status.ok()) LoseUplink(u, status.error(), now);
}

void SlotRelay::LoseUplink(size_t u, const Error& why, Time now) {
  Uplink& uplink = uplinks_[u];
  if (uplink.link->state() == LinkState::kIdle) return;
  if (uplink.link->state() == LinkState::kUp) log::Warn("lost the coordinator: {}", why.message);
  uplink.link->Close();
  uplink.connect_at = now + uplink.backoff;
  uplink.backoff = std::min(2 * uplink.backoff, kBackoffMax);
  for (size_t s = 0; s < slots_.size(); ++s) {
    // An agent whose Hello still waits here has lost nothing.
    if (UplinkOf(s) == u && slots_[s].greeted) EndAgent(s, false, now);
  }
  const bool idle = std::all_of(uplinks_.begin(), uplinks_.end(),
                                [](const Uplink& other) { return other.link->state() == LinkState::kIdle; });
  if (!idle) return;
  shared_ = separate_ = false;
  leader_.reset();
  ping_at_ = kNever;
}

void SlotRelay::ReadUplink(size_t u, Time now) {
  CoordinatorLink& link = *uplinks_[u].link;
  while (link.state() == LinkState::kUp) {
    const auto frame = link.NextFrame();
    if (!frame.ok()) return LoseUplink(u, frame.error(), now);
    if (!frame.value()) return;
    if (link.slots().empty()) {
      Deliver(separate_ ? u : leader_.value_or(0), **frame, now);
      for (size_t other = 0; other < uplinks_.size(); ++other) {
        // Its Welcome has moved it.
        if (other != u && uplinks_[other].link.get() == &link) return ReadUplink(other, now);
      }
      continue;
    }
    for (const int32_t slot : std::vector<int32_t>(link.slots())) {
      if (static_cast<size_t>(slot) < slots_.size()) Deliver(static_cast<size_t>(slot), **frame, now);
    }
  }
}

void SlotRelay::Deliver(size_t s, std::string_view frame, Time now) {
  Slot& slot = slots_[s];
  if (slot.agent == nullptr || !slot.greeted) return;
  if (frame == ByeFrame()) return EndAgent(s, false, now);
  if (const Status sent = slot.agent->SendRaw(frame); !sent.ok()) return EndAgent(s, true, now);
  if (slot.welcome || frame.size() > kMaxWelcomeBytes) return;
  const auto message = rendezvous::DecodeBody(frame.substr(4));
  if (!message.ok()) return;
  if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message.value())) {
    slot.welcome = true;
    uplinks_[UplinkOf(s)].backoff = kBackoffMin;
    OnWelcome(s, welcome->shared);
  }
}

void SlotRelay::OnWelcome(size_t s, bool shared) {
  if (shared_ || (separate_ && !shared)) return;
  if (!shared) {
    log::Info("the coordinator is of an earlier build: each slot uses a separate connection");
    separate_ = true;
    std::swap(uplinks_[0], uplinks_[s]);
    return;
  }
  // The next coordinator can do it: the other connections are not needed any more.
  if (separate_) {
    std::swap(uplinks_[0], uplinks_[s]);
    for (size_t other = 0; other < slots_.size(); ++other) {
      if (other != s && slots_[other].greeted) EndAgent(other, false, Now());
      if (other != 0) uplinks_[other].link->Close();
    }
  }
  separate_ = false;
  shared_ = true;
  leader_ = s;
}

void SlotRelay::Ping(Time now) {
  std::vector<int32_t> alive;
  bool any = false;
  for (size_t s = 0; s < slots_.size(); ++s) {
    any = any || slots_[s].greeted;
    if (std::exchange(slots_[s].heard, false) && slots_[s].greeted) alive.push_back(static_cast<int32_t>(s));
  }
  ping_at_ = any && shared_ ? now + kPingInterval : kNever;
  if (alive.empty() || !shared_) return;
  const Status sent = uplinks_[0].link->SendRaw(rendezvous::EncodeRoute(alive) + PingFrame());
  if (!sent.ok()) LoseUplink(0, sent.error(), now);
}

int RunSlotRelay(SlotRelay::Options options, std::vector<Fd> doorbells) {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGTERM);
  const Fd signals(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  CHECK(signals.valid(), "signalfd: error {}", errno);
  SlotRelay relay(std::move(options), std::move(doorbells));
  for (pollfd end = {signals.get(), POLLIN, 0}; ::poll(&end, 1, 0) <= 0;)
    relay.RunOnce(kNever, signals.get());
  const Time limit = Now() + kRelayShutdownLimit;
  while (Now() < limit && (relay.HasAgents() || relay.HasUnsent())) relay.RunOnce(limit, -1);
  return 0;
}

}  // namespace ringmaster::agent
