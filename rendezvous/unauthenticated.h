// SPDX-License-Identifier: Apache-2.0

// What Server asks of connections before and during their authentication. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/log.h"

namespace ringmaster::rendezvous {

// Counts connections that are not authenticated, in total and by address.
class Unauthenticated {
 public:
  Unauthenticated(int32_t most, int32_t most_per_address)
      : most_(most), most_per_address_(most_per_address) {}

  // Returns false when there are too many. Logs a flood once, not once per connection.
  bool Add(const std::string& address) {
    const auto known = by_address_.find(address);
    const int32_t of_peer = known == by_address_.end() ? 0 : known->second;
    const bool full = total_ >= most_ || of_peer >= most_per_address_;
    if (full && !logged_) {
      log::Warn("rendezvous: {} unauthenticated connections, {} of them from {}: more are refused", total_,
                of_peer, address);
    }
    logged_ = full;
    if (full) return false;
    ++by_address_[address];
    ++total_;
    return true;
  }
  // It is authenticated, or closed. REQUIRES: Add returned true for it.
  void Remove(const std::string& address) {
    const auto known = by_address_.find(address);
    if (--known->second == 0) by_address_.erase(known);
    --total_;
  }

 private:
  const int32_t most_;
  const int32_t most_per_address_;
  std::map<std::string, int32_t> by_address_;
  int32_t total_ = 0;
  bool logged_ = false;
};

// Compares in constant time: the position of the first difference does not show.
inline bool SameSecret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[b.empty() ? 0 : i % b.size()]));
  }
  return difference == 0;
}

}  // namespace ringmaster::rendezvous
