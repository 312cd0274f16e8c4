// SPDX-License-Identifier: Apache-2.0

// Decides which events to create, which to count in an existing event, and which to drop because a job causes
// too many. Pure; event_recorder.h sends the result.
//
// Three stages, as in client-go:
//  - Equal events (job, type, reason, note) within `series_window` form a series: its count rises, and is
//    written at most once per `patch_interval`.
//  - When a job has more than `similar_limit` notes of one type and reason within the window, the rest form
//    one series with the newest note.
//  - A job may create `burst` events at once and one more every `refill`. Updates of a count need no token.
// At most `capacity` series are kept: the least recently used is evicted first, and Add evicts those whose
// window is over.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace ringmaster::kube {

struct EventSubject {
  std::string namespace_;
  std::string name;
  std::string uid;
  auto operator<=>(const EventSubject&) const = default;
};

// Create this event object. Its name is unique.
struct CreateEvent {
  EventSubject subject;
  std::string name;
  bool warning = false;
  std::string reason;
  std::string note;
};
// Raise the count of an event created before.
struct UpdateSeries {
  std::string namespace_;
  std::string name;
  int32_t count = 2;
  std::string note;  // empty: unchanged
};

class EventCorrelator {
 public:
  struct Options {
    Duration series_window = seconds(360);
    Duration patch_interval = seconds(60);
    int similar_limit = 10;
    int burst = 25;
    Duration refill = seconds(300);
    size_t capacity = 4096;
    std::string salt;  // differs per process, so that two processes give different names
  };
  struct Writes {
    std::vector<CreateEvent> create;
    std::vector<UpdateSeries> update;
  };

  explicit EventCorrelator(Options options) : options_(std::move(options)) {}

  void Add(const EventSubject& subject, bool warning, const std::string& reason, const std::string& note,
           Time now);
  // Returns the writes that are due, and forgets them.
  Writes Take(Time now);
  // The next time at which Take has something to return even without another Add.
  Time NextWakeup() const { return due_.empty() ? kNever : due_.begin()->first; }
  int64_t dropped() const { return dropped_; }
  size_t held() const { return series_.size(); }

 private:
  // A hash of what identifies a series, which would take hundreds of bytes. A collision is very unlikely; it
  // would count one series with the other.
  using Id = uint64_t;
  struct Series {
    std::string namespace_;
    std::string name;
    bool combined = false;  // holds several notes
    int32_t count = 1;
    int32_t reported = 1;  // the count last returned by Take
    std::string note;      // the newest; only if combined
    Time last_seen{};
    Time last_reported{};
    std::list<Id>::iterator used;
  };
  struct Bucket {
    double tokens = 0;
    Time filled{};
  };
  struct Similar {
    int notes = 0;
    Time since{};
  };

  // Takes one of the job's tokens. Returns false if it has none.
  bool TakeToken(const EventSubject& subject, Time now);
  void Forget(Id id);
  void ForgetOld(Time now);

  const Options options_;
  std::map<Id, Series> series_;
  std::list<Id> by_use_;  // by last_seen, newest first
  std::map<Id, Bucket> buckets_;
  std::map<Id, Similar> similar_;
  std::multimap<Time, Id> due_;  // when a count must be reported
  Writes writes_;
  uint64_t next_ = 1;
  int64_t dropped_ = 0;
};

}  // namespace ringmaster::kube
