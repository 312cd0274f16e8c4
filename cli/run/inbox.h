// SPDX-License-Identifier: Apache-2.0

// Passes progress, reports and events from the threads of the coordinator server and the control loop to the
// main thread, which shows and records them. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/messages.h"
#include "rendezvous/report.h"

namespace ringmaster::cli {

class Inbox {
 public:
  struct Content {
    struct Batch {
      rendezvous::Progress progress;
      double received = 0;  // MonotonicSeconds
    };
    std::vector<Batch> progress;
    std::vector<rendezvous::EventLine> coordinator_lines;
    struct Note {
      bool warning = false;
      std::string reason;
      std::string text;
    };
    std::vector<Note> notes;                   // of other threads of this process
    std::optional<rendezvous::Report> report;  // the newest
    std::vector<rendezvous::GangBusyTimes> busy_times;
  };

  Inbox();

  void PutProgress(const rendezvous::Progress& progress);
  void PutLine(const rendezvous::EventLine& line);
  void PutNote(Content::Note note);
  void PutBusyTimes(const rendezvous::GangBusyTimes& times);
  void PutReport(const rendezvous::Report& report);
  // Wakes the main thread because of a change that is not in the inbox.
  void Wake();

  // Readable after every Put and Wake, until Take.
  int wake_fd() const { return wake_.get(); }
  // Returns the content and empties the inbox. Main thread only.
  Content Take();

 private:
  Mutex mutex_;
  Content content_ RM_GUARDED_BY(mutex_);
  Fd wake_;  // eventfd
};

}  // namespace ringmaster::cli
