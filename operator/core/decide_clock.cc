// SPDX-License-Identifier: Apache-2.0

// Times in the ledger were written by a clock: that of another machine, or ours before somebody set it. One
// that is ahead of now would make us wait for it.
#include <algorithm>

#include "operator/core/decide_steps.h"
#include "operator/core/rules.h"

namespace ringmaster::core {
namespace {

// Clocks of two machines differ by less than this as a matter of course.
constexpr Duration kSkew = seconds(5);

class Clamp {
 public:
  explicit Clamp(Time now) : now_(now) {}

  void Past(Time& at) const { Future(at, Duration{0}); }
  void Past(std::optional<Time>& at) const {
    if (at) Past(*at);
  }
  // At most `ahead` from now.
  void Future(Time& at, Duration ahead) const {
    if (at > now_ + ahead + kSkew) at = now_ + ahead;
  }

 private:
  Time now_;
};

}  // namespace

Ledger ClampFutureTimes(const Observed& o, Time now) {
  Ledger ledger = o.status.ledger;
  const Clamp clamp(now);
  clamp.Past(ledger.attempt_since);
  clamp.Past(ledger.ready_since);
  clamp.Past(ledger.stop_since);
  clamp.Past(ledger.active_since);
  clamp.Past(ledger.start_time);
  clamp.Past(ledger.accounted);
  for (Suspect& suspect : ledger.suspects) clamp.Past(suspect.since);
  for (Absence& absence : ledger.absent) clamp.Past(absence.since);
  if (ledger.not_before) clamp.Future(*ledger.not_before, std::max(o.job.backoff_initial, o.job.backoff_max));
  for (ExcludedNode& node : ledger.excluded) clamp.Future(node.until, o.job.node_exclusion);
  return ledger;
}

}  // namespace ringmaster::core
