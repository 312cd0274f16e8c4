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
// their decision were acknowledged.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "operator/control/backoff.h"
#include "operator/control/freshness.h"
#include "operator/control/ports.h"
#include "operator/control/work_queue.h"
#include "operator/core/decide.h"

namespace ringmaster::control {

struct Changed {
  Key key;
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

class Controller {
 public:
  struct Options {
    uint64_t seed = 1;                   // of the jitter
    size_t max_writes = 16;              // of one decision in flight
    Duration stale_limit = seconds(10);  // a view that stays behind for so long is read through
    std::function<core::Decision(const core::Observed&, Time)> decide = core::Decide;
    // Called for each decision, before its commands: for logs and traces.
    std::function<void(const Key&, const core::Observed&, const core::Decision&, Time)> on_decision;
  };

  // `view` must outlive the controller.
  Controller(const View& view, Options options);

  void On(const ControlEvent& event, Time now);
  std::vector<Command> TakeCommands(Time now);
  // Time::min(): call TakeCommands at once; kNever: only an event can bring something new.
  Time NextWakeup() const { return queue_.NextWakeup(); }

 private:
  struct State {
    int in_flight = 0;
    bool must_read = false;
    bool failed = false;  // one of the writes in flight
    bool cut = false;     // not all actions of the decision were sent
    std::optional<Time> stale_since;
    std::optional<Time> requeue_at;
    std::vector<core::Event> events;
  };
  struct Pending {
    Key key;
    std::optional<Kind> kind;
  };

  void Reconcile(const Key& key, Time now);
  void Send(const Key& key, State& state, Snapshot snapshot, core::Decision decision, Time now);
  void Read(const Key& key, State& state);
  void OnWrite(uint64_t id, const Result<Revision>& result, Time now);
  void OnRead(uint64_t id, const Status& result, Time now);
  void Finish(const Key& key, State& state, Time now);

  const View& view_;
  Options options_;
  WorkQueue<Key> queue_;
  Freshness freshness_;
  Backoff<Key> backoff_;
  std::map<Key, State> states_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_id_ = 1;
  std::vector<Command> commands_;
};

}  // namespace ringmaster::control
