// SPDX-License-Identifier: Apache-2.0

// Decides which request keeps a copy of a collection up to date: list it, watch from there, and start over
// when events may have been lost. One state machine per collection, without clock, socket or JSON.
//
//            Next: List             OnListed              Next: Watch
//   kEmpty ------------> kInitPage ----------> kInitListed -----------> kWatching
//     ^  ^                  |                     ^   |                    |
//     |  +---- failure -----+                     |   |  the stream ended, broke or was silent
//     |                                           +---|--------------------+
//     +-- 410, an unreadable line, or several watches in a row without a line
//
// reflector.h calls Next(now) after every event and when a Wait is over, and reports the results. The
// StoreEvent returned says what a report means for the store: between kInit and kInitDone a list is
// incomplete, and must not be visible.
//
// Invariants:
//  - At most one request is in flight.
//  - A delay follows every failure: 0.8 s doubling to 30 s, with jitter; short again after two minutes
//    without one.
//  - No event is skipped: when one may have been lost, everything is listed again. A list is never older than
//    what was seen, since it is read at the newest revision.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/result.h"
#include "base/rng.h"
#include "base/time.h"

namespace ringmaster::kube {

enum class LineKind : uint8_t { kApply, kDelete, kBookmark, kError };

enum class StoreEvent : uint8_t { kNone, kInit, kInitApply, kInitDone, kApply, kDelete, kBookmark };

class Watcher {
 public:
  struct Options {
    uint64_t seed = 1;
    Duration backoff_first = milliseconds(800);
    Duration backoff_last = seconds(30);
    Duration healthy = seconds(120);     // after this time without a failure the next delay is short again
    Duration idle_limit = seconds(150);  // the server sends a bookmark every minute
    Duration very_short = seconds(1);    // a watch that ends sooner without a line is a failure
    int32_t timeout_least_seconds = 240;
    int32_t timeout_most_seconds = 300;
    int idle_watch_limit = 5;  // list again after this many watches in a row without a line
  };
  enum class State : uint8_t { kEmpty, kInitPage, kInitListed, kWatching };

  struct List {};  // begins with kInit
  struct Watch {
    std::string resource_version;
    int32_t timeout_seconds = 0;
  };
  struct Cancel {};  // cancel the running stream, ignore its further lines, and call Next again at once
  struct Wait {
    Time until;
  };
  using Command = std::variant<List, Watch, Cancel, Wait>;

  explicit Watcher(Options options) : options_(options), rng_(options.seed) {}

  // Returns what to do now. It returns each List and Watch once; the caller must report its outcome.
  Command Next(Time now);

  StoreEvent OnPage() const;
  StoreEvent OnListed(std::string resource_version, Time now);
  void OnListFailed(const Error& error, Time now);
  // `resource_version`: of the object; empty for kError. `error_code`: the HTTP status in a kError line.
  StoreEvent OnLine(LineKind kind, const std::string& resource_version, int error_code, Time now);
  // Lists again, although the watch runs.
  void Restart(Time now);
  void OnUnreadableLine(Time now);
  void OnEnd(const Status& status, Time now);

  State state() const { return state_; }
  const std::string& resource_version() const { return resource_version_; }

 private:
  void Fail(State next, Time now);
  void Drop(State next, Time now);

  const Options options_;
  SplitMix64 rng_;
  State state_ = State::kEmpty;
  std::string resource_version_;
  bool cancel_ = false;
  int failures_ = 0;
  Time last_failure_{};
  Time not_before_ = Time::min();
  int idle_watches_ = 0;
  bool line_seen_ = false;  // in this watch
  Time watch_began_{};
  Time last_line_{};
};

const char* StateName(Watcher::State state);

}  // namespace ringmaster::kube
