// SPDX-License-Identifier: Apache-2.0

// What a user's program says about its progress: a line of its output, or a message to the socket
// RINGMASTER_PROGRESS_SOCKET, that is a JSON object with a whole number `step`:
//
//   {"step": 120, "loss": 0.71, "total_steps": 1000, "samples": 64, "lr": 0.001}
//
// Only `step` is required, and other members are ignored. Not thread-safe.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::agent {

class ProgramProgress {
 public:
  // The coordinator hears of progress at most this often.
  static constexpr Duration kPeriod = milliseconds(100);

  // A program starts: steps of an earlier one do not count.
  void Begin(Time now);
  // Takes a line or a message. Returns true if it reports progress.
  bool Take(std::string_view text, Time now);

  // When Flush is due; kNever: there is nothing to report.
  Time due() const { return pending_.records.empty() ? kNever : due_; }
  // Returns what was reported since the last call. `now` is at least due(), or the program has ended.
  std::optional<rendezvous::Progress> Flush(Time now);

 private:
  rendezvous::Progress pending_;
  Time due_{};
  Time stepped_at_{};
};

}  // namespace ringmaster::agent
