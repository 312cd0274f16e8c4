// SPDX-License-Identifier: Apache-2.0

// Who leads: the candidate's side of a Lease, as a pure machine (client-go's rules). Single-threaded;
// keeper.h drives it over a real API server.
//
//   elector.Next(now)        what to do now: read the Lease, write it, or wait until a time
//   elector.OnRead(...)      the Lease as it is now, or that there is none
//   elector.OnWritten(...)   the Lease as our write left it
//   elector.OnFailed(...)    the read or write failed; a lost race comes here too and is followed by a read
//
// Clocks of other machines are not trusted: another holder's lease runs from the moment at which *we* saw its
// record change. Invariants:
//  E1. Leading(now) holds for at most `renew_deadline` after the start of our last write that was
//  acknowledged, so
//      that it ends before anybody else may take the Lease (duration > renew_deadline).
//  E2. Once lost, leadership never comes back in the life of one elector: the process ends, and starts
//  afresh. E3. The term rises with every change of holder. It is the fence of everything that outlives a
//  leader.
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
    std::string identity;  // of this process alone
    Duration duration = seconds(15);
    Duration renew_deadline = seconds(10);
    Duration retry_period = seconds(2);
    uint64_t seed = 1;  // of the jitter of retries
  };
  enum class Step : uint8_t { kWait, kRead, kWrite };
  struct Action {
    Step step = Step::kWait;
    Time until = kNever;  // kWait
    LeaseRecord record;   // kWrite: what to write, over its `revision`
  };

  explicit LeaseStateMachine(Options options);

  // After kRead or kWrite it says kWait until the answer came.
  Action Next(Time now);
  void OnRead(const std::optional<LeaseRecord>& lease, Time now);
  void OnWritten(const LeaseRecord& lease, Time now);
  void OnFailed(Time now);

  bool Leading(Time now) const { return now < LeadershipEnds(); }
  // Time::min() when we have none.
  Time LeadershipEnds() const;
  bool lost() const { return lost_; }
  // Number of changes of holder, ours included; of use while leading. At least 1.
  int64_t term() const { return record_ ? record_->transitions : 0; }
  // The holder last seen; empty when nobody is known.
  std::string holder() const { return record_ ? record_->holder : std::string(); }

  // What to write to hand the Lease over at once; nullopt when it is not ours. Leadership ends with this
  // call.
  std::optional<LeaseRecord> Release();

 private:
  void ObserveRecord(const LeaseRecord& lease, Time now);
  bool Ours() const { return record_ && record_->holder == options_.identity; }
  Time RetryAt(Time now);

  const Options options_;
  SplitMix64 rng_;
  std::optional<LeaseRecord> record_;
  Time changed_at_{};         // when we saw record_ change
  std::optional<Time> held_;  // start of our last acknowledged write
  Time asked_at_{};           // start of the request in flight
  bool in_flight_ = false;
  bool must_read_ = true;
  bool lost_ = false;
  Time next_{Time::min()};
};

}  // namespace ringmaster::election
