// SPDX-License-Identifier: Apache-2.0

// What to ask of the API server next, so that a copy of a collection stays true: list it, watch from there,
// and start over when the thread is lost. One state machine per collection; no clock, no socket, no JSON.
//
//            Next: List             OnListed              Next: Watch
//   kEmpty ------------> kInitPage ----------> kInitListed -----------> kWatching
//     ^  ^                  |                     ^   |                    |
//     |  +---- failure -----+                     |   |  the server ended the stream, it broke, or was silent
//     |                                           +---|--------------------+
//     +-- 410, a line that cannot be read, or several watches in a row that brought nothing --+
//
// The shell (reflector.h) asks Next(now) whenever something happened or the time of a Wait has come, and
// reports what comes back. What a report means for the store is the StoreEvent returned: half a listing is
// between kInit and kInitDone, and must not be shown.
//
// Invariants: at most one request is under way; a delay follows every failure (0.8 s doubling to 30 s, with
// jitter, short again after two minutes without one); events are never skipped: when one may have been lost,
// everything is listed anew, and a listing is never older than what was seen (it is read at the newest).
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
    Duration healthy = seconds(120);     // without a failure: the next delay is a short one again
    Duration idle_limit = seconds(150);  // a bookmark is due every minute
    Duration very_short = seconds(1);    // a watch that ends sooner and brought nothing is a failure
    int32_t timeout_least_seconds = 240;
    int32_t timeout_most_seconds = 300;
    int idle_watch_limit =
        5;  // watches in a row without a line, after which a new listing is the better guess
  };
  enum class State : uint8_t { kEmpty, kInitPage, kInitListed, kWatching };

  struct List {};  // begins with kInit
  struct Watch {
    std::string resource_version;
    int32_t timeout_seconds = 0;
  };
  struct Cancel {};  // the stream that runs; what still comes of it means nothing. Ask again at once.
  struct Wait {
    Time until;
  };
  using Command = std::variant<List, Watch, Cancel, Wait>;

  explicit Watcher(Options options) : options_(options), rng_(options.seed) {}

  // The one thing to do now. List and Watch are given once: their outcome must be reported.
  Command Next(Time now);

  StoreEvent OnPage() const;
  StoreEvent OnListed(std::string resource_version, Time now);
  void OnListFailed(const Error& error, Time now);
  // `resource_version` of the object; empty for kError, whose `error_code` is the HTTP status it carries.
  StoreEvent OnLine(LineKind kind, const std::string& resource_version, int error_code, Time now);
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
  bool line_seen_ = false;  // of this watch
  Time watch_began_{};
  Time last_line_{};
};

const char* StateName(Watcher::State state);

}  // namespace ringmaster::kube
