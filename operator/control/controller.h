// SPDX-License-Identifier: Apache-2.0

// Controller: the reconciler, as a state machine without I/O. Events and the time go in, commands come out.
// Start reading here; backend.h has the interface to the outside, core/decide.h makes the decisions, loop.h
// runs a controller over a real backend, and the simulator (tests/sim/controller) runs it over a faulty one.
// Not thread-safe.
//
//   controller.On(Changed{key}, now);
//   for (Command& c : controller.TakeCommands(now)) carry it out, and answer with WriteDone or ReadDone;
//   wait until controller.NextWakeup() or the next event.
//
// Invariants:
//  - At most one decision per job is being carried out.
//  - No decision uses a view that does not include the controller's own acknowledged writes (freshness.h).
//  - A live read follows a write of unknown outcome, and one that shows that the view is behind.
//  - A Kubernetes event is sent only after the actions of its decision were acknowledged.
//  - Status writes of mere progress share a budget, in the order in which the jobs ask: so many jobs that
//    train cost the API server no more than a few.
//  - At most max_in_flight writes are in flight. Jobs take turns, so a large gang does not delay the others.
//
// A large gang is reconciled periodically while it changes, not once per event. A refusal (quota, admission,
// permissions) is kept per job and passed to the next decisions until a write about pods succeeds or the spec
// changes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "operator/control/backend.h"
#include "operator/control/backoff.h"
#include "operator/control/freshness.h"
#include "operator/control/work_queue.h"
#include "operator/core/decide/decide.h"

namespace ringmaster::control {

struct Changed {
  Key key;
  Time since = Time::max();  // when it changed, if before this event is handed over
};
struct WriteDone {
  uint64_t id = 0;
  Result<Revision> result;
};
struct ReadDone {
  uint64_t id = 0;
  Status result;
};
using ControlEvent = std::variant<Changed, WriteDone, ReadDone>;

struct DoWrite {
  uint64_t id = 0;
  Write write;
};
struct DoRead {
  uint64_t id = 0;
  Key key;
};
struct DoRecord {
  Key key;
  core::Event event;
};
using Command = std::variant<DoWrite, DoRead, DoRecord>;

struct FailedWrite {
  const Key& key;
  int64_t attempt = 0;  // of the job, as the decision observed it
  rendezvous::Generation generation = 0;
  const core::Action& action;
  const Error& error;
  bool routine = false;  // another write came first, or a refusal that the condition Admitted reports
};

// For metrics.
struct Load {
  int64_t added = 0;    // how often a job was queued, in total
  int64_t retried = 0;  // of these, after a failure
  size_t waiting = 0;   // jobs that wait for a decision
  size_t writing = 0;   // writes that wait for an answer
};

class Controller {
 public:
  struct Options {
    uint64_t seed = 1;                   // of the retry jitter
    size_t max_writes = 512;             // per decision; a new decision follows for the rest
    size_t max_in_flight = 50;           // of all jobs together
    int64_t deferrable_per_second = 20;  // status writes of mere progress, of all jobs together
    Duration stale_limit = seconds(10);  // a stale view without progress for this long is read through
    std::function<core::Decision(const core::Observed&, Time)> decide = core::Decide;
    // Called for each decision, before its commands: for logs and traces.
    std::function<void(const Key&, const core::Observed&, const core::Decision&, Time)> on_decision;
    // Called when the writes of a decision were answered, with "success", "requeue_after" or "error" and how
    // long they took. For metrics.
    std::function<void(const Key&, const char* result, Duration took)> on_reconciled;
    // Called for each failed write. For logs and metrics.
    std::function<void(const FailedWrite&)> on_failed_write;
    // Called when the reconciliation of a job ends, with its time in the queue and its duration. For metrics.
    std::function<void(Duration waited, Duration worked)> on_turn;
    // Called when a job does not exist or no longer exists. May be called repeatedly.
    std::function<void(const Key&)> on_gone;
  };

  // `view` must outlive the controller.
  Controller(View& view, Options options);

  void On(const ControlEvent& event, Time now);
  std::vector<Command> TakeCommands(Time now);
  // Returns when to call TakeCommands next. Time::min(): now. kNever: after the next event.
  Time NextWakeup() const { return CanSend() ? Time::min() : queue_.NextWakeup(); }
  Load load() const { return {queue_.added(), retried_, queue_.waiting(), writes_in_flight_}; }

 private:
  struct State {
    int in_flight = 0;
    bool must_read = false;
    bool failed = false;     // a write of this decision failed
    bool truncated = false;  // the decision had more than max_writes actions
    bool pod_write_succeeded = false;
    std::string job_uid;
    Revision job_revision = 0;
    int64_t attempt = 0;
    rendezvous::Generation generation = 0;
    Time began{};       // when the current decision was made
    Time hold_until{};  // no decision before this time: the last one examined many pods and found nothing to
                        // do
    std::vector<core::Action> unsent;        // in reverse order (an empty deque would keep a page)
    std::optional<core::Refusal> refused;    // of a write of this decision
    std::optional<core::Refusal> refusal;    // passed to the next decisions
    int32_t refusals = 0;                    // refused decisions in a row
    int64_t refused_generation = 0;          // the spec generation that was refused
    std::set<std::string> taken_names;       // pod names that existed when their creation was requested
    std::optional<Time> turn_at;             // when it may next write mere progress; unset: it has not asked
    int32_t failed_status_writes = 0;        // in a row
    std::optional<Time> stale_since;         // since when the view is behind without progress
    std::array<Revision, kKinds> reached{};  // the revisions of the view at that time
    std::optional<Time> requeue_at;
    std::vector<core::Event> events;
  };
  struct Pending {
    Key key;
    core::Action action;
  };

  void Reconcile(const Key& key, Time now);
  void Send(const Key& key, State& state, Snapshot snapshot, core::Decision decision, Time now);
  bool MayWriteProgress(State& state, Time now);
  void Report(const Key& key, State& state, const core::Action& action, const Error& error);
  bool CanSend() const { return writes_in_flight_ < options_.max_in_flight && !turns_.empty(); }
  void SendQueued();
  void RecordRefusal(const core::Action& action, const Error& error, State& state, Time now);
  void Read(const Key& key, State& state);
  void OnWrite(uint64_t id, const Result<Revision>& result, Time now);
  void OnRead(uint64_t id, const Status& result, Time now);
  void Finish(const Key& key, State& state, Time now);
  void Retry(const Key& key, Time now);
  void Done(const Key& key, Time now);

  View& view_;
  Options options_;
  WorkQueue<Key> queue_;
  Freshness freshness_;
  Backoff<Key> backoff_;
  std::map<Key, State> states_;
  std::map<uint64_t, Pending> pending_;
  std::map<uint64_t, Key> reads_;
  std::deque<Key> turns_;  // jobs with unsent actions; entries without any are skipped
  size_t writes_in_flight_ = 0;
  Time next_turn_ = Time::min();  // to write mere progress
  uint64_t next_id_ = 1;
  int64_t retried_ = 0;
  std::vector<Command> commands_;
};

}  // namespace ringmaster::control
