// SPDX-License-Identifier: Apache-2.0

// Outbox keeps what one connection has not sent yet, within bounds. Many outboxes share a large frame, and
// each copies small ones. Not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace ringmaster::rendezvous {

class Outbox {
 public:
  using Frame = std::shared_ptr<const std::string>;

  static constexpr size_t kMaxOwnBytes = size_t{256} << 10;
  // A peer that has not read this many memberships reads none: it gets the newest when it connects again.
  // Copies of one membership, for the slots of a pod, count once.
  static constexpr size_t kMaxShared = 3;
  static constexpr size_t kSmallBytes = size_t{4} << 10;  // a copy of them costs less than an entry

  // Appends `head` and then the frame. Returns false when the limits are exceeded: close the connection.
  bool Push(std::string_view head, const Frame& frame) {
    if (frame->size() > kSmallBytes) {
      if (!head.empty()) Append(head);
      entries_.push_back({frame, {}});
      ++shared_[frame.get()];
    } else {
      Append(head);
      Append(*frame);
    }
    return own_bytes_ <= kMaxOwnBytes && shared_.size() <= kMaxShared;
  }
  bool empty() const { return entries_.empty(); }
  // Returns the next bytes to send. REQUIRES: !empty().
  std::string_view front() const { return std::string_view(Text(entries_.front())).substr(sent_); }
  // The first `bytes` of front() are sent.
  void Pop(size_t bytes) {
    sent_ += bytes;
    const Entry& entry = entries_.front();
    if (sent_ < Text(entry).size()) return;
    if (entry.shared) {
      if (const auto it = shared_.find(entry.shared.get()); --it->second == 0) shared_.erase(it);
    } else {
      own_bytes_ -= entry.own.size();
    }
    entries_.pop_front();
    sent_ = 0;
  }

 private:
  struct Entry {
    Frame shared;  // null: `own`
    std::string own;
  };
  static const std::string& Text(const Entry& entry) { return entry.shared ? *entry.shared : entry.own; }
  void Append(std::string_view text) {
    if (entries_.empty() || entries_.back().shared || entries_.back().own.size() > kSmallBytes)
      entries_.emplace_back();
    entries_.back().own += text;
    own_bytes_ += text.size();
  }

  std::deque<Entry> entries_;
  size_t sent_ = 0;  // of the first entry
  size_t own_bytes_ = 0;
  std::map<const std::string*, size_t> shared_;  // entries by frame
};

}  // namespace ringmaster::rendezvous
