// SPDX-License-Identifier: Apache-2.0

// Feeds a page with the output folder of a run, finished or running. While a page is open, one thread follows
// the files of the folder with inotify and reads only what was appended, so a step costs the run nothing
// more.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/json.h"
#include "base/time.h"
#include "cli/history/busy_history.h"
#include "cli/history/gang_timeline.h"
#include "cli/history/run_event.h"
#include "cli/history/step_history.h"
#include "cli/ui/feed_thread.h"
#include "cli/ui/page_feed.h"
#include "cli/ui/step_buckets.h"

namespace ringmaster::cli {

class FolderFeed final : public PageFeed {
 public:
  // Errors: kNotFound when `folder` is not the output folder of a run.
  static Result<std::unique_ptr<FolderFeed>> Open(const std::string& folder);
  // The same for the folder of a run that has not written anything yet.
  static Result<std::unique_ptr<FolderFeed>> OpenEarly(const std::string& folder);
  ~FolderFeed() override;

  void Subscribe(const std::string& job, http::BodyStream stream) override;
  void Steps(const std::string& job, int64_t from, int64_t to, http::Responder reply) override;
  void Log(const std::string& job, const std::string& worker, const std::string& until,
           http::Responder reply) override;
  void Finish() override;

 private:
  // A file that another process appends to.
  struct Tail {
    std::string path;
    ino_t inode = 0;
    uint64_t offset = 0;
    std::string rest;  // a line that is not complete
  };
  struct Subscriber {
    http::BodyStream stream;
    size_t stride = 0;  // of the buckets it has; 0: none yet
    size_t steps = 0;   // that it has
    size_t events = 0;
    uint64_t busy = 0;     // windows that it has
    std::string run = {};  // as last sent
    bool gang = false;
    Time steps_due{};  // when it gets the newest steps
  };
  explicit FolderFeed(std::string folder);

  // All on the feed's thread.
  void Tick();
  void Refresh();
  bool ReadMore(Tail& tail, bool* restarted);
  void ReadSteps();
  void ReadEvents();
  void ReadBusyTimes();
  std::string RunMessage();
  bool Send(Subscriber& subscriber, const std::string& run);  // false: the client is gone
  void SendAll();

  const std::string folder_;
  std::string name_;
  Fd watch_;
  Tail metrics_;
  Tail log_of_events_;
  Tail log_of_busy_times_;
  BusyHistory busy_;
  std::unique_ptr<StepLineReader> reader_;
  StepBuckets buckets_;
  std::vector<RunEvent> events_;
  GangTimeline gang_;  // of the current events_
  bool running_ = false;
  bool loaded_ = false;
  std::string damage_;  // why metrics.jsonl cannot be read further
  std::vector<Subscriber> subscribers_;
  FeedThread thread_;  // last: the rest exists while it runs
};

}  // namespace ringmaster::cli
