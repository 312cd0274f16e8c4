// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/log_followers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "cli/cluster/export_pod.h"
#include "operator/kube/api_error.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Text;

constexpr size_t kMaxGoneLogs = 200;
constexpr size_t kMaxPendingLines = 20'000;
constexpr Duration kLogRetry = seconds(5);
constexpr Duration kLogRetryLast = seconds(60);

}  // namespace

// One log. Lines arrive on a thread of the transport, and Take reads them on the thread of the watch.
class LogFollowers::Follower {
 public:
  Follower(Cluster& cluster, Cluster::Container container, int64_t lines, std::function<void()> changed)
      : cluster_(cluster),
        container_(std::move(container)),
        lines_(lines),
        shared_(std::make_shared<Shared>()) {
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
  WorkerLog& log() { return log_; }
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
    stream_ = cluster_.FollowLog(container_, lines_, std::move(handlers));
  }

  Cluster& cluster_;
  const Cluster::Container container_;
  const int64_t lines_;  // that a request begins with
  const std::shared_ptr<Shared> shared_;
  WorkerLog log_;
  kube::WallTime known_{};  // lines up to here were read by an earlier request
  std::string problem_;
  bool finished_ = false;
  int failures_ = 0;
  Time retry_at_ = Time::min();
  std::unique_ptr<kube::HttpStream> stream_;
};

LogFollowers::LogFollowers(Cluster& cluster, std::string space, std::function<void()> changed)
    : cluster_(cluster), space_(std::move(space)), changed_(std::move(changed)) {}

LogFollowers::~LogFollowers() = default;

LogFollowers::Pod LogFollowers::PodOf(const Json& pod) {
  const std::string_view phase = Text(Child(pod, "status"), "phase");
  const bool runs = phase == "Running";
  return {std::string(Text(Child(pod, "metadata"), "name")),
          std::string(Text(WorkerContainerOf(pod), "name")),
          runs || phase == "Succeeded" || phase == "Failed", runs};
}

void LogFollowers::Update(const std::vector<Pod>& pods) {
  const Time now = Now();
  std::map<std::string, bool> runs;
  for (const Pod& pod : pods) runs[pod.name] = pod.runs;
  auto followed =
      std::count_if(logs_.begin(), logs_.end(), [&](const auto& item) { return runs.contains(item.first); });
  for (const Pod& pod : pods) {
    if (static_cast<size_t>(followed) >= kMaxLogs || logs_.size() >= kMaxLogs + kMaxGoneLogs) break;
    if (!pod.started || logs_.contains(pod.name)) continue;
    const int64_t lines = logs_.empty() ? kHistoryLines : kLogLines;
    logs_.emplace(pod.name,
                  std::make_unique<Follower>(cluster_, Cluster::Container{pod.name, pod.container, space_},
                                             lines, changed_));
    ++followed;
  }
  for (auto& [name, follower] : logs_) {
    const auto known = runs.find(name);
    // The log of a pod that is gone is not requested again.
    if (known == runs.end())
      follower->Stop();
    else
      follower->Take(known->second, now);
  }
}

WorkerLogs LogFollowers::logs() const {
  WorkerLogs logs;
  for (const auto& [pod, follower] : logs_) logs[pod] = &follower->log();
  return logs;
}

std::vector<LogStep> LogFollowers::TakeSteps() {
  std::vector<LogStep> steps;
  for (auto& [pod, follower] : logs_) {
    const std::vector<LogStep> read = follower->log().TakeSteps();
    steps.insert(steps.end(), read.begin(), read.end());
  }
  return steps;
}

Result<std::string> LogFollowers::Tail(const std::string& pod, std::optional<kube::WallTime> failure,
                                       const std::string& hint) const {
  const auto found = logs_.find(pod);
  if (found == logs_.end())
    return Error{
        Code::kNotFound,
        fmt::format("the page follows the logs of the first {} workers that started; {}", kMaxLogs, hint)};
  const WorkerLog& log = found->second->log();
  const std::string text = failure ? log.TailOfFailure(*failure) : log.Tail();
  if (text.empty() && !found->second->problem().empty())
    return Error{Code::kNotFound, found->second->problem()};
  return text;
}

}  // namespace ringmaster::cli
