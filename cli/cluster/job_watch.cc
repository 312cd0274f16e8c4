// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/job_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "cli/cluster/export_pod.h"
#include "cli/ui/page_json.h"
#include "operator/kube/api_error.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Integer;
using json::Text;

constexpr size_t kMaxPageEvents = 1000;
constexpr size_t kMaxGangGenerations = 400;
constexpr size_t kMaxGoneLogs = 200;
constexpr size_t kMaxPendingLines = 20'000;
constexpr Duration kLogRetry = seconds(5);
constexpr Duration kLogRetryLast = seconds(60);

kube::Store<Json>::Hooks Whole(const std::function<void()>& changed) {
  kube::Store<Json>::Hooks hooks;
  hooks.decode = [](const Json& object, const kube::Meta&, const auto&) {
    return std::make_shared<const Json>(object);
  };
  hooks.changed = [changed](const std::string&, const auto&, const auto&) { changed(); };
  return hooks;
}

void Update(JobWatch::Message& message, std::string data) {
  if (message.version > 0 && data == message.data) return;
  message.data = std::move(data);
  ++message.version;
}

std::vector<Json> Copies(const kube::Store<Json>& store) {
  std::vector<Json> items;
  for (const auto& value : store.All()) items.push_back(*value);
  return items;
}

}  // namespace

// One log. Lines arrive on a thread of the transport, and Take reads them on the thread of the watch.
class JobWatch::Follower {
 public:
  Follower(Cluster& cluster, Cluster::Container container, std::function<void()> changed)
      : cluster_(cluster), container_(std::move(container)), shared_(std::make_shared<Shared>()) {
    shared_->changed = std::move(changed);
  }

  // Reads new lines, and requests the log again when it ended although the container may still run.
  void Take(bool runs, Time now) {
    std::vector<std::string> lines;
    bool ended = false;
    {
      MutexLock lock(shared_->mutex);
      lines.swap(shared_->lines);
      ended = std::exchange(shared_->ended, false);
      if (ended) problem_ = std::exchange(shared_->problem, {});
    }
    for (const std::string& line : lines) log_.Add(line, known_);
    if (!lines.empty()) failures_ = 0;
    if (ended) {
      stream_.reset();
      finished_ = problem_.empty() && !runs;
      const Duration pause = kLogRetry * (1 << std::min(failures_++, 5));
      retry_at_ = now + std::min<Duration>(pause, kLogRetryLast);
    }
    if (!stream_ && !finished_ && now >= retry_at_) Start();
  }

  void Stop() { stream_.reset(); }
  const WorkerLog& log() const { return log_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Shared {
    Mutex mutex;
    std::vector<std::string> lines RM_GUARDED_BY(mutex);
    bool ended RM_GUARDED_BY(mutex) = false;
    std::string problem RM_GUARDED_BY(mutex);
    std::function<void()> changed;
  };

  void Start() {
    known_ = log_.newest();
    kube::StreamHandlers handlers;
    handlers.on_line = [shared = shared_](std::string_view line) {
      {
        MutexLock lock(shared->mutex);
        // A program that prints faster than this thread reads loses the oldest lines.
        if (shared->lines.size() >= kMaxPendingLines)
          shared->lines.erase(shared->lines.begin(), shared->lines.begin() + kMaxPendingLines / 2);
        shared->lines.emplace_back(line.substr(0, WorkerLog::kLineBytes));
      }
      shared->changed();
    };
    handlers.on_end = [shared = shared_, pod = container_.pod](const Result<kube::HttpResponse>& result) {
      {
        MutexLock lock(shared->mutex);
        shared->ended = true;
        if (!result.ok())
          shared->problem = result.error().message;
        else if (result->status >= 300)
          shared->problem = kube::ToError(*result, true, "log of " + pod).message;
      }
      shared->changed();
    };
    stream_ = cluster_.FollowLog(container_, kLogLines, std::move(handlers));
  }

  Cluster& cluster_;
  const Cluster::Container container_;
  const std::shared_ptr<Shared> shared_;
  WorkerLog log_;
  kube::WallTime known_{};  // lines up to here were read by an earlier request
  std::string problem_;
  bool finished_ = false;
  int failures_ = 0;
  Time retry_at_ = Time::min();
  std::unique_ptr<kube::HttpStream> stream_;
};

JobWatch::JobWatch(Cluster& cluster, std::string space, std::string name, std::function<void()> changed)
    : cluster_(cluster),
      space_(std::move(space)),
      name_(std::move(name)),
      changed_(std::move(changed)),
      jobs_(Whole(changed_)),
      pods_(Whole(changed_)),
      events_(Whole(changed_)),
      reflectors_(cluster.api()) {
  const auto add = [this](const kube::Resource& resource, kube::Store<Json>& store, std::string labels,
                          std::string fields) {
    kube::Collection collection;
    collection.resource = resource;
    collection.namespace_ = space_;
    collection.label_selector = std::move(labels);
    collection.field_selector = std::move(fields);
    collection.on_failure = [changed = changed_](const Error&) { changed(); };
    reflectors_.Add(std::move(collection), store.In(""));
  };
  add(kube::kJobs, jobs_, "", "metadata.name=" + name_);
  add(kube::kPods, pods_, std::string(wiring::kJobLabel) + "=" + name_, "");
  add(kEvents, events_, "", AboutJob(name_));
  reflectors_.Start();
}

JobWatch::~JobWatch() {
  reflectors_.Stop();
  for (auto& [pod, follower] : logs_) follower->Stop();
}

std::vector<Json> JobWatch::Pods() const { return Copies(pods_); }

void JobWatch::Refresh() {
  FollowLogs();
  RefreshRun();
  RefreshGang();
}

void JobWatch::FollowLogs() {
  const Time now = Now();
  std::map<std::string, bool> runs;
  for (const auto& pod : pods_.All()) {
    const std::string name(Text(Child(*pod, "metadata"), "name"));
    const std::string_view phase = Text(Child(*pod, "status"), "phase");
    runs[name] = phase == "Running";
    const bool started = phase == "Running" || phase == "Succeeded" || phase == "Failed";
    if (!started || logs_.contains(name) || logs_.size() >= kMaxLogs + kMaxGoneLogs) continue;
    const auto followed = std::count_if(logs_.begin(), logs_.end(),
                                        [&](const auto& item) { return runs.contains(item.first); });
    if (static_cast<size_t>(followed) >= kMaxLogs) continue;
    Cluster::Container container{name, std::string(Text(WorkerContainerOf(*pod), "name")), space_};
    logs_.emplace(name, std::make_unique<Follower>(cluster_, std::move(container), changed_));
  }
  for (auto& [pod, follower] : logs_) {
    const auto known = runs.find(pod);
    // The log of a pod that is gone is not requested again; what was read of it stays.
    if (known == runs.end()) follower->Stop();
    if (known != runs.end()) follower->Take(known->second, now);
  }
}

void JobWatch::RefreshRun() {
  const auto jobs = jobs_.All();
  gone_ = jobs.empty() && jobs_.synced();
  if (!jobs.empty()) {
    job_ = *jobs[0];
    const std::string uid(Text(Child(job_, "metadata"), "uid"));
    if (uid != uid_) {  // a job that was deleted and created again
      curve_.Clear();
      checkpoints_.clear();
      checkpoint_known_ = false;
      uid_ = uid;
    }
    if (const auto point = ProgressPoint(job_)) curve_.Add(*point);
    const int64_t checkpoint = Integer(Child(Child(job_, "status"), "checkpoint"), "step", -1);
    if (checkpoint > checkpoint_ && checkpoint_known_) {
      const kube::WallTime at = kube::WallNow();
      RunEvent event;
      event.reason = "CheckpointPublished";
      event.message = fmt::format("checkpoint of step {}", checkpoint);
      event.time = kube::WallTimeText(at);
      event.monotonic_seconds = std::chrono::duration<double>(at.time_since_epoch()).count();
      event.step = checkpoint;
      checkpoints_.push_back(std::move(event));
    }
    checkpoint_ = checkpoint;
    checkpoint_known_ = true;
  }
  Json run = JobRun(job_);
  run["name"] = space_ + "/" + name_;
  if (gone_) {
    run["phase"] = job_.is_null() ? "Unknown" : "Deleted";
    run["message"] = job_.is_null() ? "there is no such job" : "the job was deleted";
    run["live"] = false;
  } else if (job_.is_null()) {
    run["phase"] = "Loading";
    run["message"] = "";
  }
  std::string problem;
  // Before the first list is complete, the page has nothing to warn about.
  for (const std::string& one : reflectors_.Problems())
    if (!one.ends_with("not listed yet")) problem += (problem.empty() ? "" : "; ") + one;
  run["problem"] = problem;
  Update(run_, DumpJson(PlainTexts(std::move(run))));
  Update(workers_, DumpJson(PlainTexts({{"items", JobWorkers(Pods())}})));
}

void JobWatch::RefreshGang() {
  // Events and marks are never changed, only added and removed.
  std::string of = uid_ + std::to_string(checkpoints_.size()) +
                   (Text(Child(job_, "status"), "completionTime").empty() ? "" : "e");
  for (const auto& event : events_.All())
    of += std::string(Text(Child(*event, "metadata"), "resourceVersion")) + ",";
  for (const auto& [pod, follower] : logs_) of += pod + ":" + std::to_string(follower->log().marked()) + ",";
  if (of == gang_of_ || job_.is_null()) return;
  gang_of_ = std::move(of);
  std::vector<RunEvent> reported = ReportedEvents(Copies(events_), job_);
  reported.insert(reported.end(), checkpoints_.begin(), checkpoints_.end());
  WorkerLogs logs;
  for (const auto& [pod, follower] : logs_) logs[pod] = &follower->log();
  const std::vector<RunEvent> gang = GangEvents(logs, reported, job_);
  timeline_ = TimelineOf(gang);
  gang_ = PlainTexts(TimelineJson(timeline_, kMaxGangGenerations));
  Update(gang_message_, DumpJson(gang_));
  const std::vector<RunEvent> events = PageEvents(reported, gang);
  Update(events_message_,
         DumpJson(PlainTexts({{"reset", true}, {"items", EventsJson(events, 0, kMaxPageEvents)}})));
}

std::string JobWatch::GangNow() const {
  if (gang_.is_null()) return gang_message_.data;
  Json gang = gang_;
  if (!timeline_.ended && timeline_.zero > 0)
    gang["now"] = std::chrono::duration<double>(kube::WallNow().time_since_epoch()).count() - timeline_.zero;
  return DumpJson(gang);
}

Result<std::string> JobWatch::Log(const std::string& pod, const std::string& until) const {
  const auto found = logs_.find(pod);
  if (found == logs_.end())
    return Error{Code::kNotFound,
                 fmt::format("the page follows the logs of the first {} workers that started; "
                             "kubectl ringmaster logs {} -n {}",
                             kMaxLogs, name_, space_)};
  const auto failure = kube::ParseWallTime(until);
  const WorkerLog& log = found->second->log();
  const std::string text = failure.ok() ? log.TailOfFailure(*failure) : log.Tail();
  if (text.empty() && !found->second->problem().empty())
    return Error{Code::kNotFound, found->second->problem()};
  return text;
}

}  // namespace ringmaster::cli
