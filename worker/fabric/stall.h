// SPDX-License-Identifier: Apache-2.0

// StallDetector decides when a wait for peers cannot end. A pure state machine: it knows no clock and sends
// nothing.
//
// A peer that has not entered a collective may compute, read or write for as long as it likes: others judge
// it (its agent, which sees hangs and deaths; the transport, which sees dead connections). But when every
// member waits in a collective and no data arrives, none of them can help the others. So members announce
// their waits to each other, and the deadline counts only while all of them wait and no wait ends.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace ringmaster::fabric {

class StallDetector {
 public:
  StallDetector(int rank, int world, Duration timeout)
      : rank_(rank), timeout_(timeout), peers_(static_cast<size_t>(world)) {}

  // A wait of this member begins.
  void Begin(Time now) {
    ++wait_;
    since_ = now;
    announcement_ = now + Period();
  }
  // Returns the number of the current wait, which announcements carry.
  uint64_t wait() const { return wait_; }

  // Returns true once per period: the wait must be announced to all peers, again.
  bool AnnouncementDue(Time now) {
    if (now < announcement_) return false;
    announcement_ = now + Period();
    return true;
  }

  // A peer announced that it is in its wait number `wait`.
  void Heard(int peer, uint64_t wait, Time now) {
    Peer& from = peers_[static_cast<size_t>(peer)];
    if (!from.heard || from.wait != wait || now - from.at > Fresh()) since_ = now;
    from = {.heard = true, .wait = wait, .at = now};
  }

  // Returns whether all members have waited without data for longer than the timeout. `progress`: when data
  // arrived or left last.
  bool Stalled(Time now, Time progress) {
    for (size_t q = 0; q < peers_.size(); ++q) {
      if (q == static_cast<size_t>(rank_)) continue;
      if (!peers_[q].heard || now - peers_[q].at > Fresh()) since_ = now;
    }
    if (progress > since_) since_ = progress;
    return now - since_ > timeout_;
  }

 private:
  struct Peer {
    bool heard = false;
    uint64_t wait = 0;
    Time at{};
  };
  Duration Period() const { return timeout_ / 12; }
  // How long an announcement is believed: a peer may miss two.
  Duration Fresh() const { return timeout_ / 4; }

  const int rank_;
  const Duration timeout_;
  std::vector<Peer> peers_;
  uint64_t wait_ = 0;
  Time since_{};  // all members wait, and no data has moved
  Time announcement_{};
};

}  // namespace ringmaster::fabric
