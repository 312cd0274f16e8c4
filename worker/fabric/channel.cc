// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/channel.h"

#include <cstring>
#include <utility>

namespace ringmaster::fabric {

void Land(const Landing& landing, const std::byte* message) {
  const size_t bytes = landing.data.size();
  std::byte* const data = landing.data.data();
  if (bytes == 0) return;
  if (landing.action == Landing::Action::kCopy) {
    std::memcpy(data, message, bytes);
    return;
  }
  const bool append = landing.action == Landing::Action::kAppend;
  const std::byte* const sources[] = {append ? data : message, append ? message : data};
  landing.combiner.Combine(data, sources, bytes / kElementBytes);
}

void Channel::Queue(Stamp stamp, std::span<const std::byte> data) {
  queue_.push_back({queued_++, stamp, data});
}

std::optional<Outgoing> Channel::Next() {
  if (queue_.empty() || sent_ >= credited_ + kWindow || bytes_under_way_ >= kWindowBytes) return std::nullopt;
  const Outgoing next = queue_.front();
  queue_.pop_front();
  ++sent_;
  under_way_.push_back(next.data.size());
  bytes_under_way_ += next.data.size();
  return next;
}

void Channel::OnCredit(uint64_t landed) {
  if (landed > sent_) return;
  for (; credited_ < landed; ++credited_) {
    bytes_under_way_ -= under_way_.front();
    under_way_.pop_front();
  }
}

Status Channel::Post(Stamp stamp, const Landing& landing) {
  expected_.push_back({stamp, landing});
  // Only the front can land, so a message is kept only while none is posted for it.
  if (expected_.size() > 1) return Ok();
  const auto kept = kept_.find(landed_);
  if (kept == kept_.end()) return Ok();
  Kept message = std::move(kept->second);
  kept_.erase(kept);
  Status status = LandNext(message.stamp, message.bytes);
  if (spare_.size() < kWindow) spare_.push_back(std::move(message.bytes));
  return status;
}

Status Channel::OnMessage(uint64_t sequence, Stamp stamp, std::span<const std::byte> message) {
  if (sequence < landed_ || sequence >= landed_ + kWindow || kept_.contains(sequence))
    return Error{Code::kInternal, fmt::format("message {} after {} were landed", sequence, landed_)};
  if (sequence != landed_ || expected_.empty()) {
    Kept kept;
    kept.stamp = stamp;
    if (!spare_.empty()) {
      kept.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    kept.bytes.assign(message.begin(), message.end());
    kept_.emplace(sequence, std::move(kept));
    return Ok();
  }
  RM_TRY(LandNext(stamp, message));
  while (!expected_.empty()) {
    const auto kept = kept_.find(landed_);
    if (kept == kept_.end()) break;
    Kept next = std::move(kept->second);
    kept_.erase(kept);
    RM_TRY(LandNext(next.stamp, next.bytes));
    if (spare_.size() < kWindow) spare_.push_back(std::move(next.bytes));
  }
  return Ok();
}

Status Channel::LandNext(Stamp stamp, std::span<const std::byte> message) {
  const Expected expected = expected_.front();
  if (stamp != expected.stamp || message.size() != expected.landing.data.size())
    return Error{
        Code::kInternal,
        fmt::format("operation {} step {}, {} bytes came where operation {} step {}, {} bytes was due",
                    stamp.operation, stamp.step, message.size(), expected.stamp.operation,
                    expected.stamp.step, expected.landing.data.size())};
  expected_.pop_front();
  Land(expected.landing, message.data());
  ++landed_;
  bytes_to_tell_ += message.size();
  return Ok();
}

uint64_t Channel::Tell() {
  told_ = landed_;
  bytes_to_tell_ = 0;
  return landed_;
}

bool Channel::CreditDue() const { return landed_ >= told_ + kCreditEvery || bytes_to_tell_ >= kCreditBytes; }

}  // namespace ringmaster::fabric
