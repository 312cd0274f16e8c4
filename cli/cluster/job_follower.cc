// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/job_follower.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/time.h"
#include "cli/cluster/export_pod.h"
#include "cli/cluster/log_merge.h"
#include "cli/cluster/status_screen.h"
#include "cli/command.h"
#include "cli/write_text.h"
#include "operator/kube/api_error.h"
#include "operator/kube/backend/resources.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/reflector.h"
#include "operator/kube/watch/store.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Text;

constexpr Duration kFollowTick = seconds(1);  // to request a log again
constexpr Duration kLastLines = seconds(10);  // for the ends of logs after the job has ended

// Wakes the main thread from any thread.
class Wake {
 public:
  Wake() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(fd_.valid(), "eventfd"); }
  void Set() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(fd_.get(), &one, sizeof one);
  }
  void Wait() const {
    pollfd wait = {fd_.get(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(ToMs(kFollowTick)));
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  Fd fd_;
};

// The log of one pod. Its lines are printed as they arrive, on a thread of the transport.
class FollowedLog {
 public:
  FollowedLog(Cluster& cluster, Cluster::Container container, std::string prefix,
              std::shared_ptr<const Wake> wake)
      : cluster_(cluster),
        container_(std::move(container)),
        prefix_(std::move(prefix)),
        wake_(std::move(wake)),
        shared_(std::make_shared<Shared>()) {}

  // Requests the log, or the rest of it after a connection has broken. `runs`: the container does.
  void Update(bool runs) {
    bool ended = false;
    std::string problem;
    {
      MutexLock lock(shared_->mutex);
      ended = std::exchange(shared_->ended, false);
      problem = shared_->problem;
    }
    if (ended) {
      stream_.reset();
      finished_ = problem.empty() && !runs;
      if (!problem.empty() && problem != said_)
        Print(stderr, "ringmaster: log of {}: {}; requested again\n", container_.pod, problem);
      said_ = problem;
    }
    if (!stream_ && !finished_) Start();
  }

  // The pod is gone: no more of its log can be requested.
  void Stop() {
    MutexLock lock(shared_->mutex);
    if (shared_->ended || !stream_) finished_ = true;
  }
  bool finished() const { return finished_; }

 private:
  struct Shared {
    Mutex mutex;
    kube::WallTime newest RM_GUARDED_BY(mutex){};  // of the lines so far
    bool ended RM_GUARDED_BY(mutex) = false;
    std::string problem RM_GUARDED_BY(mutex);
  };

  void Start() {
    kube::WallTime known;
    {
      MutexLock lock(shared_->mutex);
      known = shared_->newest;
    }
    kube::StreamHandlers handlers;
    handlers.on_line = [shared = shared_, prefix = prefix_, known](std::string_view line) {
      const auto time = kube::ParseWallTime(line.substr(0, line.find(' ')));
      MutexLock lock(shared->mutex);
      if (time.ok() && *time <= known) return;  // printed by an earlier request
      if (time.ok()) shared->newest = *time;
      Print(stdout, "{}{}\n", prefix, WithoutTime(line));
      std::fflush(stdout);
    };
    handlers.on_end = [shared = shared_, wake = wake_](const Result<kube::HttpResponse>& result) {
      {
        MutexLock lock(shared->mutex);
        shared->ended = true;
        shared->problem = !result.ok()            ? result.error().message
                          : result->status >= 300 ? kube::ToError(*result, true, "read").message
                                                  : std::string();
      }
      wake->Set();
    };
    stream_ = cluster_.FollowLog(container_, -1, std::move(handlers));
  }

  Cluster& cluster_;
  const Cluster::Container container_;
  const std::string prefix_;
  const std::shared_ptr<const Wake> wake_;
  const std::shared_ptr<Shared> shared_;
  std::string said_;
  bool finished_ = false;
  std::unique_ptr<kube::HttpStream> stream_;
};

kube::Store<Json>::Hooks WakingHooks(const std::shared_ptr<const Wake>& wake) {
  kube::Store<Json>::Hooks hooks;
  hooks.decode = [](const Json& object, const kube::Meta&, const auto&) {
    return std::make_shared<const Json>(object);
  };
  hooks.changed = [wake](const std::string&, const auto&, const auto&) { wake->Set(); };
  return hooks;
}

class Follower {
 public:
  Follower(Cluster& cluster, const std::string& name, const std::vector<int>& ranks)
      : cluster_(cluster),
        name_(name),
        ranks_(ranks),
        wake_(std::make_shared<const Wake>()),
        jobs_(WakingHooks(wake_)),
        pods_(WakingHooks(wake_)),
        reflectors_(cluster.api()) {
    Watch(kube::kJobs, jobs_, "", "metadata.name=" + name);
    Watch(kube::kPods, pods_, std::string(wiring::kJobLabel) + "=" + name, "");
    reflectors_.Start();
  }
  ~Follower() { reflectors_.Stop(); }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // REQUIRES: the job exists.
  Result<int> Run() {
    while (true) {
      const bool listed = jobs_.listed("");  // before the read: the list is in it
      const auto jobs = jobs_.All();
      if (jobs.empty() && !ended_ && (last_job_ || (listed && IsGone())))
        return Error{Code::kNotFound, cluster_.space() + "/" + name_ + " was deleted while it was followed"};
      if (!jobs.empty()) {
        last_job_ = jobs.front();
        ShowPhase(*last_job_);
      }
      UpdateLogs();
      if (ended_) {
        if (!last_) last_ = Now() + kLastLines;
        const bool read =
            std::all_of(logs_.begin(), logs_.end(), [](const auto& log) { return log.second->finished(); });
        if (read || Now() >= *last_) return Finish(*last_job_);
      }
      wake_->Wait();
    }
  }

 private:
  // Asks the API server: the first list may come from a cache that is older than the job.
  bool IsGone() {
    const Result<Json> job = cluster_.Job(name_);
    return !job.ok() && job.error().code == Code::kNotFound;
  }

  void Watch(const kube::Resource& resource, kube::Store<Json>& store, std::string labels,
             std::string fields) {
    kube::Collection collection;
    collection.resource = resource;
    collection.namespace_ = cluster_.space();
    collection.label_selector = std::move(labels);
    collection.field_selector = std::move(fields);
    collection.on_failure = [said = said_](const Error& error) {
      MutexLock lock(said->mutex);
      if (std::exchange(said->text, error.message) != error.message)
        Print(stderr, "ringmaster: {}; tried again\n", error.message);
    };
    reflectors_.Add(std::move(collection), store.In(""));
  }

  void ShowPhase(const Json& job) {
    const std::string phase(Text(Child(job, "status"), "phase"));
    ended_ = phase == "Succeeded" || phase == "Failed";
    if (phase.empty() || ended_) return;
    const std::string why = phase == "Running" ? "" : ExplainPhase(job);
    const std::string text = phase + (why.empty() ? "" : ", " + why);
    if (std::exchange(shown_, text) != text) Print(stderr, "{}: {}\n", name_, text);
  }

  void UpdateLogs() {
    std::map<std::string, bool> runs;
    for (const auto& pod : pods_.All()) {
      const Json& labels = Child(Child(*pod, "metadata"), "labels");
      const std::string_view role = Text(labels, wiring::kRoleLabel);
      const std::string rank(Text(labels, wiring::kRankLabel));
      const auto is_rank = [&](int wanted) { return std::to_string(wanted) == rank; };
      if ((!role.empty() && role != "worker") || std::none_of(ranks_.begin(), ranks_.end(), is_rank))
        continue;
      const std::string_view phase = Text(Child(*pod, "status"), "phase");
      if (phase != "Running" && phase != "Succeeded" && phase != "Failed") continue;
      const std::string name(Text(Child(*pod, "metadata"), "name"));
      runs[name] = phase == "Running";
      if (logs_.contains(name)) continue;
      const std::string container(Text(WorkerContainerOf(*pod), "name"));
      logs_[name] = std::make_unique<FollowedLog>(cluster_, Cluster::Container{name, container},
                                                  ranks_.size() > 1 ? "[" + rank + "] " : "", wake_);
    }
    for (auto& [name, log] : logs_) {
      const auto found = runs.find(name);
      if (found == runs.end())
        log->Stop();
      else
        log->Update(found->second && !ended_);
    }
  }

  int Finish(const Json& job) const {
    const Json& status = Child(job, "status");
    const bool good = Text(status, "phase") == "Succeeded";
    const std::string failure = good ? "" : LastFailureText(job, {});
    Print(stderr, "{}: {}, {}\n", name_, good ? "Succeeded" : "Failed", ExplainPhase(job));
    if (!failure.empty()) Print(stderr, "{}: last failure: {}\n", name_, failure);
    if (const std::string_view hash = Text(status, "weightsHash"); good && !hash.empty())
      Print(stderr, "{}: weights hash {}\n", name_, hash);
    return good ? kSucceeded : kFailed;
  }

  struct Said {
    Mutex mutex;
    std::string text RM_GUARDED_BY(mutex);
  };

  Cluster& cluster_;
  const std::string name_;
  const std::vector<int> ranks_;
  const std::shared_ptr<Said> said_ = std::make_shared<Said>();
  const std::shared_ptr<const Wake> wake_;
  kube::Store<Json> jobs_;  // the one job, or nothing
  kube::Store<Json> pods_;
  std::shared_ptr<const Json> last_job_;  // outlives the job: one that has ended may be deleted
  bool ended_ = false;
  std::optional<Time> last_;
  std::string shown_;
  std::map<std::string, std::unique_ptr<FollowedLog>> logs_;  // by pod
  kube::Reflectors reflectors_;                               // last: its threads use the stores
};

}  // namespace

Result<int> FollowJob(Cluster& cluster, const std::string& name, const std::vector<int>& ranks) {
  RM_TRY(cluster.Job(name));
  return Follower(cluster, name, ranks).Run();
}

}  // namespace ringmaster::cli
