// SPDX-License-Identifier: Apache-2.0

#include "operator/election/elector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::election {

Elector::Elector(Options options) : options_(std::move(options)), rng_(options_.seed) {
  CHECK(!options_.identity.empty());
  CHECK(options_.duration > options_.renew_deadline && options_.renew_deadline > options_.retry_period);
}

Time Elector::RetryAt(Time now) {
  // Up to a fifth more, so that candidates do not knock in step.
  const auto fifth = static_cast<uint64_t>(options_.retry_period.count() / 5);
  return now + options_.retry_period + Duration(static_cast<int64_t>(rng_.Below(fifth + 1)));
}

Time Elector::RightEnds() const { return !lost_ && held_ ? *held_ + options_.renew_deadline : Time::min(); }

Elector::Todo Elector::Next(Time now) {
  if (held_ && !lost_ && now >= *held_ + options_.renew_deadline) lost_ = true;
  Todo todo;
  if (lost_) return todo;
  // While leading the end of our right wakes the caller even when an answer is outstanding.
  const Time end_of_right = held_ ? *held_ + options_.renew_deadline : kNever;
  if (in_flight_ || now < next_) {
    todo.until = in_flight_ ? end_of_right : std::min(next_, end_of_right);
    return todo;
  }
  if (must_read_) {
    in_flight_ = true;
    asked_at_ = now;
    todo.step = Step::kRead;
    return todo;
  }
  const bool held_by_other = record_ && !record_->holder.empty() && !Ours();
  if (held_by_other && now < changed_at_ + record_->duration) {
    // Somebody else's, and still good as far as we can tell: look again.
    must_read_ = true;
    next_ = std::min(RetryAt(now), changed_at_ + record_->duration);
    todo.until = next_;
    return todo;
  }
  in_flight_ = true;
  asked_at_ = now;
  todo.step = Step::kWrite;
  todo.record.holder = options_.identity;
  todo.record.duration = options_.duration;
  todo.record.revision = record_ ? record_->revision : std::string();
  // A Lease of our own that we do not remember having written is one whose answer was lost: no new term.
  todo.record.transitions = (record_ ? record_->transitions : 0) + (Ours() ? 0 : 1);
  return todo;
}

void Elector::Saw(const LeaseRecord& lease, Time now) {
  if (!record_ || *record_ != lease) changed_at_ = now;
  record_ = lease;
}

void Elector::OnRead(const std::optional<LeaseRecord>& lease, Time now) {
  in_flight_ = false;
  must_read_ = false;
  next_ = now;
  if (lease) {
    Saw(*lease, now);
  } else {
    record_.reset();
  }
  // Taken away, or deleted, while we believed to lead.
  if (held_ && !Ours()) lost_ = true;
}

void Elector::OnWritten(const LeaseRecord& lease, Time now) {
  in_flight_ = false;
  Saw(lease, now);
  if (!Ours()) {
    must_read_ = true;
    return;
  }
  held_ = asked_at_;
  next_ = RetryAt(asked_at_);
}

void Elector::OnFailed(Time now) {
  in_flight_ = false;
  must_read_ = true;
  next_ = RetryAt(now);
}

std::optional<LeaseRecord> Elector::Release() {
  const bool ours = !lost_ && held_ && Ours();
  lost_ = true;
  if (!ours) return std::nullopt;
  LeaseRecord record = *record_;
  record.holder.clear();
  record.duration = seconds(1);
  return record;
}

}  // namespace ringmaster::election
