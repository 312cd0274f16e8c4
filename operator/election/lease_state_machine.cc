// SPDX-License-Identifier: Apache-2.0

#include "operator/election/lease_state_machine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::election {

LeaseStateMachine::LeaseStateMachine(Options options) : options_(std::move(options)), rng_(options_.seed) {
  CHECK(!options_.identity.empty());
  CHECK(options_.duration > options_.renew_deadline && options_.renew_deadline > options_.retry_period);
}

Time LeaseStateMachine::RetryAt(Time now) {
  // Up to a fifth more, so that candidates do not retry at the same time.
  const auto fifth = static_cast<uint64_t>(options_.retry_period.count() / 5);
  return now + options_.retry_period + Duration(static_cast<int64_t>(rng_.Below(fifth + 1)));
}

Time LeaseStateMachine::LeadershipEnds() const {
  return !lost_ && held_ ? *held_ + options_.renew_deadline : Time::min();
}

LeaseStateMachine::Action LeaseStateMachine::Next(Time now) {
  if (held_ && !lost_ && now >= *held_ + options_.renew_deadline) lost_ = true;
  Action action;
  if (lost_) return action;
  // A leader must wake at the end of its leadership even while an answer is outstanding.
  const Time end = held_ ? *held_ + options_.renew_deadline : kNever;
  if (in_flight_ || now < next_) {
    action.until = in_flight_ ? end : std::min(next_, end);
    return action;
  }
  if (must_read_) {
    in_flight_ = true;
    asked_at_ = now;
    action.step = Step::kRead;
    return action;
  }
  const bool held_by_other = record_ && !record_->holder.empty() && !Ours();
  if (held_by_other && now < changed_at_ + record_->duration) {
    // Another candidate holds it and it has not expired by our clock: read it again later.
    must_read_ = true;
    next_ = std::min(RetryAt(now), changed_at_ + record_->duration);
    action.until = next_;
    return action;
  }
  in_flight_ = true;
  asked_at_ = now;
  action.step = Step::kWrite;
  action.record.holder = options_.identity;
  action.record.duration = options_.duration;
  action.record.revision = record_ ? record_->revision : std::string();
  // If the Lease names us although no write was acknowledged, the answer was lost: the term stays.
  action.record.transitions = (record_ ? record_->transitions : 0) + (Ours() ? 0 : 1);
  return action;
}

void LeaseStateMachine::ObserveRecord(const LeaseRecord& lease, Time now) {
  if (!record_ || *record_ != lease) changed_at_ = now;
  record_ = lease;
}

void LeaseStateMachine::OnRead(const std::optional<LeaseRecord>& lease, Time now) {
  in_flight_ = false;
  must_read_ = false;
  next_ = now;
  if (lease) {
    ObserveRecord(*lease, now);
  } else {
    record_.reset();
  }
  // Another candidate took the Lease, or a user deleted it, while we led.
  if (held_ && !Ours()) lost_ = true;
}

void LeaseStateMachine::OnWritten(const LeaseRecord& lease, Time now) {
  in_flight_ = false;
  ObserveRecord(lease, now);
  if (!Ours()) {
    must_read_ = true;
    return;
  }
  held_ = asked_at_;
  next_ = RetryAt(asked_at_);
}

void LeaseStateMachine::OnFailed(Time now) {
  in_flight_ = false;
  must_read_ = true;
  next_ = RetryAt(now);
}

std::optional<LeaseRecord> LeaseStateMachine::Release() {
  const bool ours = !lost_ && held_ && Ours();
  lost_ = true;
  if (!ours) return std::nullopt;
  LeaseRecord record = *record_;
  record.holder.clear();
  record.duration = seconds(1);
  return record;
}

}  // namespace ringmaster::election
