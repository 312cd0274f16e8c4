// SPDX-License-Identifier: Apache-2.0

// A candidate's side of leader election over a Lease, as a pure state machine with client-go's rules.
// leader_elector.h drives it against an API server.
//
//   machine.Next(now)        what to do now: read the Lease, write it, or wait
//   machine.OnRead(...)      the Lease as read; nullopt: it does not exist
//   machine.OnWritten(...)   the Lease as our write left it
//   machine.OnFailed(...)    the read or write failed, or another candidate won the race: a read follows
//
// The machine does not trust other machines' clocks: another holder's lease runs from the moment at which
// *this* process saw the record change. Invariants:
//  E1. Leading(now) holds for at most `renew_deadline` after the start of our last acknowledged write, so
//      that it ends before another candidate may take the Lease (duration > renew_deadline).
//  E2. A machine that lost the leadership never leads again: the process exits and a new one starts.
//  E3. The term rises with every change of holder. It fences everything that outlives a leader.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/rng.h"
#include "base/time.h"

namespace ringmaster::election {

struct LeaseRecord {
  std::string holder;  // empty: released
  Duration duration = seconds(15);
  int64_t transitions = 0;
  std::string revision;  // resourceVersion; empty: the Lease does not exist yet
  bool operator==(const LeaseRecord&) const = default;
};

class LeaseStateMachine {
 public:
  struct Options {
    std::string identity;  // unique to this process
    Duration duration = seconds(15);
    Duration renew_deadline = seconds(10);
    Duration retry_period = seconds(2);
    uint64_t seed = 1;  // for the jitter of retries
  };
  enum class Step : uint8_t { kWait, kRead, kWrite };
  struct Action {
    Step step = Step::kWait;
    Time until = kNever;  // kWait
    LeaseRecord record;   // kWrite: the record to write over its `revision`
  };

  // REQUIRES: duration > renew_deadline > retry_period, and an identity.
  explicit LeaseStateMachine(Options options);

  // After kRead and kWrite, Next returns kWait until the answer has been reported.
  Action Next(Time now);
  void OnRead(const std::optional<LeaseRecord>& lease, Time now);
  void OnWritten(const LeaseRecord& lease, Time now);
  void OnFailed(Time now);

  bool Leading(Time now) const { return now < LeadershipEnds(); }
  // Returns Time::min() when not leading.
  Time LeadershipEnds() const;
  bool lost() const { return lost_; }
  // The number of holder changes, including ours; at least 1 while leading.
  int64_t term() const { return record_ ? record_->transitions : 0; }
  // The holder last seen; empty: none is known.
  std::string holder() const { return record_ ? record_->holder : std::string(); }

  // Ends the leadership. Returns the record to write so that another candidate can take the Lease at once;
  // nullopt when we do not hold it.
  std::optional<LeaseRecord> Release();

 private:
  void ObserveRecord(const LeaseRecord& lease, Time now);
  bool Ours() const { return record_ && record_->holder == options_.identity; }
  Time RetryAt(Time now);

  const Options options_;
  SplitMix64 rng_;
  std::optional<LeaseRecord> record_;
  Time changed_at_{};         // when record_ last changed, as we saw it
  std::optional<Time> held_;  // start of our last acknowledged write
  Time asked_at_{};           // start of the request in flight
  bool in_flight_ = false;
  bool must_read_ = true;
  bool lost_ = false;
  Time next_{Time::min()};
};

}  // namespace ringmaster::election
