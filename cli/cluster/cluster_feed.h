// SPDX-License-Identifier: Apache-2.0

// Feeds a page with the jobs of a cluster: the list of a namespace or of all, and each job that a browser
// opens. It reads with the rights of the user's kubeconfig, and only what a page shows: the list is watched
// while it is open, and a job while its page is open and kKeep longer, so that a reload keeps the curve.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/job_watch.h"
#include "cli/ui/feed_thread.h"
#include "cli/ui/page_feed.h"

namespace ringmaster::cli {

class ClusterFeed final : public PageFeed {
 public:
  static constexpr Duration kKeep = std::chrono::minutes(10);
  static constexpr size_t kMaxJobs = 16;  // that are watched in detail at the same time

  // `space`: the namespace of the list; empty: all.
  ClusterFeed(std::unique_ptr<Cluster> cluster, std::string space);
  ~ClusterFeed() override;

  void Subscribe(const std::string& job, http::BodyStream stream) override;
  void Steps(const std::string& job, int64_t from, int64_t to, http::Responder reply) override;
  void Log(const std::string& job, const std::string& worker, const std::string& until,
           http::Responder reply) override;
  void Finish() override;

 private:
  class JobList;
  struct Subscriber {
    http::BodyStream stream;
    uint64_t run = 0, workers = 0, gang = 0, events = 0, busy = 0;  // versions that it has
    uint64_t curve = 0, rewritten = 0;                              // of the curve
    size_t points = 0;
    bool has_curve = false;
  };
  struct OpenJob {
    std::unique_ptr<JobWatch> watch;
    std::vector<Subscriber> subscribers;
    Time used{};
  };

  // All on the feed's thread.
  void Tick();
  OpenJob* Open(const std::string& key);
  static bool Send(const JobWatch& watch, Subscriber& subscriber);
  void CloseUnused();
  void Notify();  // on any thread

  const std::unique_ptr<Cluster> cluster_;
  const std::string space_;
  const Fd wake_;
  std::unique_ptr<JobList> list_;
  std::map<std::string, OpenJob> jobs_;  // by NAMESPACE/NAME
  FeedThread thread_;                    // last: the rest exists while it runs
};

}  // namespace ringmaster::cli
