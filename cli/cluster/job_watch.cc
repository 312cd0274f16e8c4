// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/job_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/ui/page_json.h"
#include "operator/kube/backend/resources.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Integer;
using json::Text;

constexpr size_t kMaxPageEvents = 1000;
constexpr size_t kMaxGangGenerations = 400;

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

JobWatch::JobWatch(Cluster& cluster, std::string space, std::string name, std::function<void()> changed)
    : cluster_(cluster),
      space_(std::move(space)),
      name_(std::move(name)),
      changed_(std::move(changed)),
      jobs_(Whole(changed_)),
      pods_(Whole(changed_)),
      events_(Whole(changed_)),
      logs_(cluster, space_, changed_),
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

JobWatch::~JobWatch() { reflectors_.Stop(); }

std::vector<Json> JobWatch::Pods() const { return Copies(pods_); }

void JobWatch::Refresh() {
  RefreshJob();
  ReadLogs();
  RefreshRun();
  RefreshGang();
  RefreshBusy();
}

void JobWatch::ReadLogs() {
  std::vector<LogFollowers::Pod> pods;
  for (const auto& pod : pods_.All()) pods.push_back(LogFollowers::PodOf(*pod));
  logs_.Update(pods);
  for (const LogStep& step : logs_.TakeSteps()) {
    logged_ = true;
    AddToCurve(step, &curve_);
  }
}

void JobWatch::RefreshJob() {
  const auto jobs = jobs_.All();
  gone_ = jobs.empty() && jobs_.synced();
  if (!jobs.empty()) {
    job_ = *jobs[0];
    const std::string uid(Text(Child(job_, "metadata"), "uid"));
    if (uid != uid_) {  // a job that was deleted and created again
      curve_.Clear();
      logs_.Clear();
      logged_ = false;
      if (std::exchange(busy_of_, 0) > 0)
        Update(busy_, DumpJson({{"reset", true},
                                {"workers", Json::array()},
                                {"stragglers", Json::array()},
                                {"windows", Json::array()}}));
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
}

void JobWatch::RefreshRun() {
  Json run = JobRun(job_);
  run["curves"] = logged_ ? "logs" : curve_.size() > 0 ? "status" : "";
  if (Json validations = curve_.Validations(); !validations.is_null())
    run["validation"] = std::move(validations);
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
  const WorkerLogs logs = logs_.logs();
  for (const auto& [pod, log] : logs) of += pod + ":" + std::to_string(log->marked()) + ",";
  if (of == gang_of_ || job_.is_null()) return;
  gang_of_ = std::move(of);
  std::vector<RunEvent> reported = ReportedEvents(Copies(events_), job_);
  reported.insert(reported.end(), checkpoints_.begin(), checkpoints_.end());
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

void JobWatch::RefreshBusy() {
  uint64_t read = 0;
  const WorkerLogs logs = logs_.logs();
  for (const auto& [pod, log] : logs) read += log->busy_read();
  if (read == busy_of_) return;
  busy_of_ = read;
  Json message = BusyMessage(BusyWindows(LoggedBusyTimes(logs)));
  if (!message.is_null()) Update(busy_, DumpJson(PlainTexts(std::move(message))));
}

Result<std::string> JobWatch::Log(const std::string& pod, const std::string& until) const {
  const auto failure = kube::ParseWallTime(until);
  return logs_.Tail(pod, failure.ok() ? std::optional(*failure) : std::nullopt,
                    fmt::format("kubectl ringmaster logs {} -n {}", name_, space_));
}

}  // namespace ringmaster::cli
