// SPDX-License-Identifier: Apache-2.0

// Where the server's and the loop's threads leave what the main thread shows and writes down. Thread-safe;
// Take is the main thread's.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
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
    std::optional<rendezvous::Report> report;  // the newest
  };

  Inbox();

  void PutProgress(const rendezvous::Progress& progress);
  void PutLine(const rendezvous::EventLine& line);
  void PutReport(const rendezvous::Report& report);
  // Something else changed that the main thread looks at itself.
  void Wake();

  // Readable when there is something new; Take clears it.
  int wake_fd() const { return wake_.get(); }
  Content Take();

 private:
  std::mutex mutex_;
  Content content_;  // guarded by mutex_
  Fd wake_;          // eventfd
};

}  // namespace ringmaster::cli
