// SPDX-License-Identifier: Apache-2.0

// Follows one job of a cluster for a live page: watches the job, its pods and its Events, and follows the
// logs of its workers. Nothing is polled: the API server sends what changes.
//
// Not thread-safe: one thread calls it. `changed` is called on any thread when Refresh has something to do.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/job_page.h"
#include "cli/cluster/log_followers.h"
#include "cli/cluster/progress_curve.h"
#include "cli/history/gang_timeline.h"
#include "operator/kube/watch/reflector.h"
#include "operator/kube/watch/store.h"

namespace ringmaster::cli {

class JobWatch {
 public:
  // A message of page_feed.h. `version` rises with each change.
  struct Message {
    std::string data;
    uint64_t version = 0;
  };

  // REQUIRES: `cluster` outlives the watch; the names are valid names of Kubernetes.
  JobWatch(Cluster& cluster, std::string space, std::string name, std::function<void()> changed);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Brings the messages up to date.
  void Refresh();

  const Message& run() const { return run_; }
  const Message& workers() const { return workers_; }
  const Message& gang() const { return gang_message_; }
  const Message& events() const { return events_message_; }
  const Message& busy() const { return busy_; }  // version 0: there are no busy times
  const ProgressCurve& curve() const { return curve_; }
  // The message `gang` for a page that gets it now.
  std::string GangNow() const;
  // Returns the end of the log of a worker. Errors: kNotFound with the reason.
  Result<std::string> Log(const std::string& pod, const std::string& until) const;

 private:
  void RefreshJob();
  void ReadLogs();
  void RefreshRun();
  void RefreshGang();
  void RefreshBusy();
  std::vector<Json> Pods() const;

  Cluster& cluster_;
  const std::string space_;
  const std::string name_;
  const std::function<void()> changed_;
  kube::Store<Json> jobs_;  // the one job, or nothing
  kube::Store<Json> pods_;
  kube::Store<Json> events_;
  Json job_;         // as last seen; it may be gone
  std::string uid_;  // of job_
  bool gone_ = false;
  int64_t checkpoint_ = -1;
  bool checkpoint_known_ = false;
  std::vector<RunEvent> checkpoints_;  // seen while watching
  LogFollowers logs_;
  bool logged_ = false;  // the logs have lines about progress
  ProgressCurve curve_;
  uint64_t busy_of_ = 0;  // number of busy times that the message was computed from
  GangTimeline timeline_;
  Json gang_;
  std::vector<RunEvent> page_events_;
  std::string gang_of_;  // what the timeline was computed from
  Message run_;
  Message workers_;
  Message gang_message_;
  Message events_message_;
  Message busy_;
  kube::Reflectors reflectors_;  // last: its threads use the stores
};

}  // namespace ringmaster::cli
