// The rungs of the ladder that Decide climbs, one file each. Internal to core.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/model.h"

namespace ringmaster::core {

// The earliest time at which the same question may get another answer.
class Wake {
 public:
  void By(Time at) { at_ = at_ ? std::min(*at_, at) : at; }
  std::optional<Time> at() const { return at_; }

 private:
  std::optional<Time> at_;
};

// One status write with the new ledger, and the display that fits it.
Decision WriteLedger(const Observed& observed, Ledger ledger, Time now, std::string reason,
                     std::vector<Event> events = {});

// Raises the attempt: the next pod set is another one.
void BeginAttempt(const Observed& observed, Ledger& ledger);

// The verdict of the report about the end (stopped, finished, failed) concerns this run, not one before.
bool SaysNow(const Observed& observed, rendezvous::GangPhase phase);

// Deletes what `pod` needs now: with `grace` when it was not told yet, by force when it overstayed.
// Appends nothing when it is on its way.
void Remove(const Pod& pod, Duration grace, Time now, std::vector<Action>& actions, Wake& wake);

// ending.cc
std::optional<Decision> CheckEnd(const Observed& observed, Time now, Wake& wake);
Decision Fail(const Observed& observed, Ledger ledger, Time now, Reason reason, std::string message);
Decision AfterEnd(const Observed& observed, Time now);
Decision AfterDeletion(const Observed& observed, Time now);

// suspend.cc: the job is to be suspended, is on the way, is, or is to be resumed.
Decision Suspend(const Observed& observed, Time now, Wake& wake);

// failures.cc: counts what went wrong, decides on restart or failure.
std::optional<Decision> CheckFailures(const Observed& observed, Time now, Wake& wake);

// converge.cc: drains, creates, scales, gives orders, keeps the display fresh.
Decision Converge(const Observed& observed, Time now, Wake& wake);

}  // namespace ringmaster::core
