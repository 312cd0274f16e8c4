// SPDX-License-Identifier: Apache-2.0

// The controller as a machine without I/O: events go in with the time, commands come out. Single-threaded;
// runner.h drives it over a real backend, the simulator over a faulty one.
//
//   controller.On(Changed{key}, now);
//   for (Command& c : controller.TakeCommands(now)) carry it out, and answer with WriteDone or ReadDone;
//   wait until controller.NextWakeup() or the next event.
//
// Invariants: at most one decision of a job is being carried out at a time; no decision from a view that has
// not seen our own acknowledged writes (freshness.h); after a write of unknown outcome, or one that showed
// that the view is behind, a live read comes first; events for people are sent only after the actions of
// their decision were acknowledged; at most max_in_flight writes are under way, and jobs take turns, so that
// a gang of thousands does not hold up the others. One in which much happens is looked at now and then, not
// at each news.
//
// What the world refused (quota, admission, rights) is kept per job and handed to the next decisions, until a
// write about pods succeeds or the wish changes.
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
#include "operator/core/decide.h"

namespace ringmaster::control {

struct Changed {
  Key key;
  Time since = Time::max();  // when it was told, if that was earlier than it is handed over
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

// For metrics.
struct Load {
  int64_t added = 0;    // times a job was put into the queue, in all
  int64_t retried = 0;  // of those, after a failure
  size_t waiting = 0;   // jobs that wait for a decision now
  size_t writing = 0;   // writes that wait for their answer now
};

class Controller {
 public:
  struct Options {
    uint64_t seed = 1;                   // of the jitter
    size_t max_writes = 512;             // of one decision; the rest is decided anew
    size_t max_in_flight = 50;           // of all jobs together
    Duration stale_limit = seconds(10);  // a view that is behind and stands still for so long is read through
    std::function<core::Decision(const core::Observed&, Time)> decide = core::Decide;
    // Called for each decision, before its commands: for logs and traces.
    std::function<void(const Key&, const core::Observed&, const core::Decision&, Time)> on_decision;
    // Called when the writes of a decision were answered: "success", "requeue_after" or "error", and how long
    // they took. For metrics.
    std::function<void(const Key&, const char* result, Duration took)> on_reconciled;
    // Called when a job is let go: how long it had waited in the queue, and how long it took. For metrics.
    std::function<void(Duration waited, Duration worked)> on_turn;
    // Called when there is no such job (any more); may be called again.
    std::function<void(const Key&)> on_gone;
  };

  // `view` must outlive the controller.
  Controller(const View& view, Options options);

  void On(const ControlEvent& event, Time now);
  std::vector<Command> TakeCommands(Time now);
  // Time::min(): call TakeCommands at once; kNever: only an event can bring something new.
  Time NextWakeup() const { return CanSend() ? Time::min() : queue_.NextWakeup(); }
  Load load() const { return {queue_.added(), retried_, queue_.waiting(), writes_in_flight_}; }

 private:
  struct State {
    int in_flight = 0;
    bool must_read = false;
    bool failed = false;  // one of the writes in flight
    bool cut = false;     // not all actions of the decision were taken up
    bool worked = false;  // a write about pods succeeded
    std::string job_uid;
    Revision job_revision = 0;
    Time began{};       // the decision being carried out
    Time hold_until{};  // no decision before: the last one looked at many pods and found nothing to do
    std::vector<core::Action> unsent;      // the next one last: an empty deque would keep a page
    std::optional<core::Refusal> refused;  // by one of the writes of this decision
    std::optional<core::Refusal> refusal;  // what the next decisions are told
    int32_t refusals = 0;                  // decisions in a row
    int64_t refused_generation = 0;        // of the wish
    std::set<std::string> taken;           // names that existed when we wanted them
    std::optional<Time> stale_since;       // the view is behind, and has not moved
    std::array<Revision, 2> reached{};     // where it stood then
    std::optional<Time> requeue_at;
    std::vector<core::Event> events;
  };
  struct Pending {
    Key key;
    core::Action action;
  };

  void Reconcile(const Key& key, Time now);
  void Send(const Key& key, State& state, Snapshot snapshot, core::Decision decision, Time now);
  bool CanSend() const { return writes_in_flight_ < options_.max_in_flight && !turns_.empty(); }
  void Pump();
  void Note(const core::Action& action, const Error& error, State& state, Time now);
  void Read(const Key& key, State& state);
  void OnWrite(uint64_t id, const Result<Revision>& result, Time now);
  void OnRead(uint64_t id, const Status& result, Time now);
  void Finish(const Key& key, State& state, Time now);
  void Retry(const Key& key, Time now);
  void Done(const Key& key, Time now);

  const View& view_;
  Options options_;
  WorkQueue<Key> queue_;
  Freshness freshness_;
  Backoff<Key> backoff_;
  std::map<Key, State> states_;
  std::map<uint64_t, Pending> pending_;
  std::map<uint64_t, Key> reads_;
  std::deque<Key> turns_;  // jobs with unsent actions; those of dropped ones are skipped
  size_t writes_in_flight_ = 0;
  uint64_t next_id_ = 1;
  int64_t retried_ = 0;
  std::vector<Command> commands_;
};

}  // namespace ringmaster::control
