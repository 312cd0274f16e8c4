// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/watcher.h"

#include <algorithm>
#include <utility>

namespace ringmaster::kube {

namespace {
constexpr int kHttpGone = 410;
}

Watcher::Command Watcher::Next(Time now) {
  if (std::exchange(cancel_, false)) return Cancel{};
  switch (state_) {
    case State::kInitPage:
      return Wait{kNever};  // the transport limits the request's time
    case State::kWatching:
      if (now < last_line_ + options_.idle_limit) return Wait{last_line_ + options_.idle_limit};
      // The connection may be half-open.
      Fail(State::kInitListed, now);
      return Cancel{};
    case State::kEmpty:
      if (now < not_before_) return Wait{not_before_};
      state_ = State::kInitPage;
      return List{};
    case State::kInitListed:
      if (now < not_before_) return Wait{not_before_};
      state_ = State::kWatching;
      line_seen_ = false;
      watch_began_ = last_line_ = now;
      const auto span =
          static_cast<uint64_t>(options_.timeout_most_seconds - options_.timeout_least_seconds) + 1;
      return Watch{resource_version_,
                   options_.timeout_least_seconds + static_cast<int32_t>(rng_.Below(span))};
  }
  return Wait{kNever};
}

StoreEvent Watcher::OnPage() const {
  return state_ == State::kInitPage ? StoreEvent::kInitApply : StoreEvent::kNone;
}

StoreEvent Watcher::OnListed(std::string resource_version, Time) {
  if (state_ != State::kInitPage) return StoreEvent::kNone;
  state_ = State::kInitListed;
  resource_version_ = std::move(resource_version);
  idle_watches_ = 0;
  return StoreEvent::kInitDone;
}

void Watcher::OnListFailed(const Error&, Time now) {
  if (state_ == State::kInitPage) Fail(State::kEmpty, now);
}

StoreEvent Watcher::OnLine(LineKind kind, const std::string& resource_version, int error_code, Time now) {
  if (state_ != State::kWatching) return StoreEvent::kNone;
  last_line_ = now;
  if (kind == LineKind::kError) {
    Drop(error_code == kHttpGone ? State::kEmpty : State::kInitListed, now);
    return StoreEvent::kNone;
  }
  line_seen_ = true;
  idle_watches_ = 0;
  resource_version_ = resource_version;
  switch (kind) {
    case LineKind::kApply:
      return StoreEvent::kApply;
    case LineKind::kDelete:
      return StoreEvent::kDelete;
    default:
      return StoreEvent::kBookmark;
  }
}

void Watcher::OnUnreadableLine(Time now) {
  if (state_ == State::kWatching) Drop(State::kEmpty, now);
}

void Watcher::Restart(Time now) {
  if (state_ == State::kWatching) return Drop(State::kEmpty, now);
  if (state_ == State::kInitListed) state_ = State::kEmpty;
}

void Watcher::OnEnd(const Status& status, Time now) {
  if (state_ != State::kWatching) return;
  if (!status.ok()) return Fail(status.error().code == Code::kGone ? State::kEmpty : State::kInitListed, now);
  if (!line_seen_ && now - watch_began_ < options_.very_short) return Fail(State::kInitListed, now);
  state_ = State::kInitListed;
}

// The stream is still open.
void Watcher::Drop(State next, Time now) {
  cancel_ = true;
  Fail(next, now);
}

void Watcher::Fail(State next, Time now) {
  if (state_ == State::kWatching && !line_seen_ && ++idle_watches_ >= options_.idle_watch_limit)
    next = State::kEmpty;
  if (failures_ > 0 && now - last_failure_ >= options_.healthy) failures_ = 0;
  Duration delay = options_.backoff_first;
  for (int i = 0; i < failures_ && delay < options_.backoff_last; ++i) delay *= 2;
  // Between half of the delay and all of it, so that many watchers do not retry at the same time.
  const int64_t half = std::min(delay, options_.backoff_last).count() / 2;
  not_before_ = now + Duration(half + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(half) + 1)));
  failures_ += 1;
  last_failure_ = now;
  state_ = next;
}

const char* StateName(Watcher::State state) {
  switch (state) {
    case Watcher::State::kEmpty:
      return "Empty";
    case Watcher::State::kInitPage:
      return "InitPage";
    case Watcher::State::kInitListed:
      return "InitListed";
    case Watcher::State::kWatching:
      return "Watching";
  }
  return "?";
}

}  // namespace ringmaster::kube
