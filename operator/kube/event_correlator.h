// SPDX-License-Identifier: Apache-2.0

// What becomes of the events that we want to tell people: which are made, which only raise the count of one
// that stands already, which are left out because there are too many. Pure and single-threaded;
// event_recorder.h sends.
//
// Three stages, as client-go has them:
//  - the same (job, type, reason, note) within `series_window` is a series: its count rises, written at most
//  once per
//    `patch_interval`;
//  - more than `similar_limit` notes of one (job, type, reason) within the window are told as one series with
//  the newest note;
//  - a job may make `burst` events at once and one more every `refill` after that; counts are not held back
//  by this.
// Memory: at most `capacity` series; the one used longest ago goes first, and those whose window is over at
// the next note.
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

// Make this event object, under a name that no other has.
struct CreateEvent {
  EventSubject subject;
  std::string name;
  bool warning = false;
  std::string reason;
  std::string note;
};
// Raise the count of one made before.
struct UpdateSeries {
  std::string namespace_;
  std::string name;
  int32_t count = 2;
  std::string note;  // empty: as it stands
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
    std::string salt;  // of this process: makes names differ from those of another one
  };
  struct Writes {
    std::vector<CreateEvent> create;
    std::vector<UpdateSeries> update;
  };

  explicit EventCorrelator(Options options) : options_(std::move(options)) {}

  void Note(const EventSubject& subject, bool warning, const std::string& reason, const std::string& note,
            Time now);
  Writes Take(Time now);
  // When Take should be called though nothing was noted.
  Time NextWakeup() const { return due_.empty() ? kNever : due_.begin()->first; }
  int64_t dropped() const { return dropped_; }
  size_t held() const { return series_.size(); }

 private:
  // Hashes of what tells two apart, which would be hundreds of bytes for each: that two series have the same
  // is not to be expected, and would count one with the other.
  using Id = uint64_t;
  struct Series {
    std::string namespace_;
    std::string name;
    bool combined = false;  // of several notes
    int32_t count = 1;
    int32_t reported = 1;
    std::string note;  // the newest; of combined ones only
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

  bool TakeToken(const EventSubject& subject, Time now);
  void Forget(Id id);
  void ForgetOld(Time now);

  const Options options_;
  std::map<Id, Series> series_;
  std::list<Id> by_use_;  // by when they were last seen, newest first
  std::map<Id, Bucket> buckets_;
  std::map<Id, Similar> similar_;
  std::multimap<Time, Id> due_;  // counts to be told
  Writes writes_;
  uint64_t next_ = 1;
  int64_t dropped_ = 0;
};

}  // namespace ringmaster::kube
