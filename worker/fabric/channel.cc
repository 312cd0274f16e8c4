// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/channel.h"

#include <utility>

#include "worker/fabric/copy.h"

namespace ringmaster::fabric {

void Deliver(const PostedReceive& receive, const std::byte* message) {
  const size_t bytes = receive.data.size();
  std::byte* const data = receive.data.data();
  if (bytes == 0) return;
  if (receive.action == PostedReceive::Action::kCopy) {
    CopyBytes(data, message, bytes);
    return;
  }
  const bool append = receive.action == PostedReceive::Action::kAppend;
  const std::byte* const sources[] = {append ? data : message, append ? message : data};
  receive.combiner.Combine(data, sources, bytes / kElementBytes);
}

void Channel::Queue(Tag tag, std::span<const std::byte> data) { queue_.push_back({queued_++, tag, data}); }

std::optional<Outgoing> Channel::Next() {
  if (queue_.empty() || sent_ >= credited_ + kWindow || bytes_in_flight_ >= kWindowBytes) return std::nullopt;
  const Outgoing next = queue_.front();
  queue_.pop_front();
  ++sent_;
  in_flight_.push_back(next.data.size());
  bytes_in_flight_ += next.data.size();
  return next;
}

void Channel::OnCredit(uint64_t delivered) {
  if (delivered > sent_) return;
  for (; credited_ < delivered; ++credited_) {
    bytes_in_flight_ -= in_flight_.front();
    in_flight_.pop_front();
  }
}

Status Channel::Post(Tag tag, const PostedReceive& receive) {
  posted_.push_back({tag, receive});
  // Only the front receive can be filled: a message stays buffered only while no receive is posted for it.
  if (posted_.size() > 1) return Ok();
  const auto buffered = buffered_.find(delivered_);
  if (buffered == buffered_.end()) return Ok();
  Buffered message = std::move(buffered->second);
  buffered_.erase(buffered);
  Status status = DeliverNext(message.tag, message.bytes);
  if (spare_buffers_.size() < kWindow) spare_buffers_.push_back(std::move(message.bytes));
  return status;
}

Status Channel::OnMessage(uint64_t sequence, Tag tag, std::span<const std::byte> message) {
  if (sequence < delivered_ || sequence >= delivered_ + kWindow || buffered_.contains(sequence))
    return Error{Code::kInternal,
                 fmt::format("message {} arrived after {} were delivered", sequence, delivered_)};
  if (sequence != delivered_ || posted_.empty()) {
    Buffered buffered;
    buffered.tag = tag;
    if (!spare_buffers_.empty()) {
      buffered.bytes = std::move(spare_buffers_.back());
      spare_buffers_.pop_back();
    }
    buffered.bytes.assign(message.begin(), message.end());
    buffered_.emplace(sequence, std::move(buffered));
    return Ok();
  }
  RM_TRY(DeliverNext(tag, message));
  while (!posted_.empty()) {
    const auto buffered = buffered_.find(delivered_);
    if (buffered == buffered_.end()) break;
    Buffered next = std::move(buffered->second);
    buffered_.erase(buffered);
    RM_TRY(DeliverNext(next.tag, next.bytes));
    if (spare_buffers_.size() < kWindow) spare_buffers_.push_back(std::move(next.bytes));
  }
  return Ok();
}

Status Channel::DeliverNext(Tag tag, std::span<const std::byte> message) {
  const Posted expected = posted_.front();
  if (tag.operation != expected.tag.operation)
    return Error{Code::kInternal, fmt::format("the ranks call different operations: {} here, {} there",
                                              Describe(expected.tag.operation), Describe(tag.operation))};
  if (tag != expected.tag || message.size() != expected.receive.data.size())
    return Error{Code::kInternal, fmt::format("{}: got step {} with {} bytes, expected step {} with {} bytes",
                                              Describe(tag.operation), tag.step, message.size(),
                                              expected.tag.step, expected.receive.data.size())};
  posted_.pop_front();
  Deliver(expected.receive, message.data());
  ++delivered_;
  uncredited_bytes_ += message.size();
  return Ok();
}

uint64_t Channel::TakeCredit() {
  credit_sent_ = delivered_;
  uncredited_bytes_ = 0;
  return delivered_;
}

bool Channel::CreditDue() const {
  return delivered_ >= credit_sent_ + kCreditEvery || uncredited_bytes_ >= kCreditBytes;
}

}  // namespace ringmaster::fabric
