// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/cluster_feed.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cli/cluster/job_page.h"
#include "cli/ui/plain_text.h"
#include "operator/kube/backend/resources.h"

namespace ringmaster::cli {
namespace {

constexpr Duration kFeedPause = milliseconds(200);
constexpr Duration kFeedPeriod = seconds(2);  // for logs that are requested again, and jobs that are not used
constexpr size_t kMaxNameBytes = 253;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == std::string_view::npos;
}

http::Response TextResponse(int status, const std::string& text) {
  return {status, "text/plain; charset=utf-8", PlainText(text) + (text.ends_with('\n') ? "" : "\n")};
}

}  // namespace

// The list of jobs and the pages that show it.
class ClusterFeed::JobList {
 public:
  JobList(Cluster& cluster, const std::string& space, std::function<void()> changed)
      : space_(space), rows_(Hooks(changed)), reflectors_(cluster.api()) {
    kube::Collection collection;
    collection.resource = kube::kJobs;
    collection.namespace_ = space;
    collection.on_failure = [changed](const Error&) { changed(); };
    reflectors_.Add(std::move(collection), rows_.In(""));
    reflectors_.Start();
  }
  ~JobList() { reflectors_.Stop(); }
  JobList(const JobList&) = delete;
  JobList& operator=(const JobList&) = delete;

  void Add(http::BodyStream stream) {
    Subscriber subscriber{std::move(stream)};
    if (Send(subscriber, {})) subscribers_.push_back(std::move(subscriber));
  }

  // Sends the rows that changed. Returns whether a page shows the list.
  bool Tick() {
    std::set<std::string> changed;
    {
      MutexLock lock(mutex_);
      changed.swap(changed_);
    }
    std::erase_if(subscribers_, [&](Subscriber& subscriber) { return !Send(subscriber, changed); });
    return !subscribers_.empty();
  }

 private:
  struct Subscriber {
    http::BodyStream stream;
    bool complete = false;  // it has the whole list
    std::string head = {};  // what it knows apart from the rows
  };

  kube::Store<Json>::Hooks Hooks(const std::function<void()>& changed) {
    kube::Store<Json>::Hooks hooks;
    hooks.decode = [](const Json& job, const kube::Meta&, const auto&) {
      return std::make_shared<const Json>(PlainTexts(JobRow(job)));
    };
    hooks.changed = [this, changed](const std::string& key, const auto& before, const auto& after) {
      if (before && after && *before == *after) return;
      {
        MutexLock lock(mutex_);
        changed_.insert(key);
      }
      changed();
    };
    return hooks;
  }

  Json Head() const {
    std::string problem;
    for (const std::string& one : reflectors_.Problems())
      if (!one.ends_with("not listed yet")) problem = one;
    return {{"scope", space_}, {"problem", PlainText(problem)}, {"synced", rows_.synced()}};
  }

  bool Send(Subscriber& subscriber, const std::set<std::string>& changed) const {
    Json message = Head();
    const std::string head = DumpJson(message);
    Json items = Json::array(), removed = Json::array();
    const bool reset = !subscriber.complete;
    if (reset) {
      for (const auto& row : rows_.All()) items.push_back(*row);
    } else {
      for (const std::string& key : changed) {
        if (const auto row = rows_.Get(key))
          items.push_back(*row);
        else
          removed.push_back(key);
      }
    }
    // An empty piece only asks whether the client is still there.
    if (!reset && items.empty() && removed.empty() && head == subscriber.head)
      return subscriber.stream.Write("");
    subscriber.head = head;
    subscriber.complete = rows_.synced();
    message["reset"] = reset;
    message["items"] = std::move(items);
    message["removed"] = std::move(removed);
    return subscriber.stream.Write(ServerSentEvent("jobs", DumpJson(message)));
  }

  const std::string space_;
  kube::Store<Json> rows_;  // PlainTexts of job_page.h's rows
  Mutex mutex_;
  std::set<std::string> changed_ RM_GUARDED_BY(mutex_);  // keys, since the last tick
  std::vector<Subscriber> subscribers_;
  kube::Reflectors reflectors_;  // last: its threads use the rest
};

ClusterFeed::ClusterFeed(std::unique_ptr<Cluster> cluster, std::string space)
    : cluster_(std::move(cluster)),
      space_(std::move(space)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_.valid(), "eventfd");
  FeedThread::Options options;
  options.tick = [this] { Tick(); };
  options.watch_fd = wake_.get();
  options.pause = kFeedPause;
  options.period = kFeedPeriod;
  thread_.Start(std::move(options));
}

ClusterFeed::~ClusterFeed() { Finish(); }

void ClusterFeed::Finish() {
  thread_.Stop();
  list_.reset();
  jobs_.clear();
}

void ClusterFeed::Notify() { ::eventfd_write(wake_.get(), 1); }

void ClusterFeed::Subscribe(const std::string& job, http::BodyStream stream) {
  thread_.Post([this, job, stream = std::move(stream)] {
    if (job.empty()) {
      if (!list_) list_ = std::make_unique<JobList>(*cluster_, space_, [this] { Notify(); });
      return list_->Add(stream);
    }
    OpenJob* const open = Open(job);
    if (open == nullptr) {
      stream.Write(ServerSentEvent(
          "run", DumpJson({{"kind", "job"},
                           {"name", PlainText(job)},
                           {"phase", "Unknown"},
                           {"message", "not a NAMESPACE/NAME, or too many jobs are open in other pages"},
                           {"live", false}})));
      return;
    }
    Subscriber subscriber{stream};
    if (Send(*open->watch, subscriber)) open->subscribers.push_back(std::move(subscriber));
  });
}

ClusterFeed::OpenJob* ClusterFeed::Open(const std::string& key) {
  const auto known = jobs_.find(key);
  if (known != jobs_.end()) return &known->second;
  const size_t slash = key.find('/');
  if (slash == std::string::npos || !IsName(key.substr(0, slash)) || !IsName(key.substr(slash + 1)))
    return nullptr;
  if (jobs_.size() >= kMaxJobs) {
    auto oldest = jobs_.end();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job)
      if (job->second.subscribers.empty() &&
          (oldest == jobs_.end() || job->second.used < oldest->second.used))
        oldest = job;
    if (oldest == jobs_.end()) return nullptr;
    jobs_.erase(oldest);
  }
  OpenJob& open = jobs_[key];
  open.watch = std::make_unique<JobWatch>(*cluster_, key.substr(0, slash), key.substr(slash + 1),
                                          [this] { Notify(); });
  open.used = Now();
  open.watch->Refresh();
  return &open;
}

void ClusterFeed::Steps(const std::string& job, int64_t from, int64_t to, http::Responder reply) {
  thread_.Post([this, job, from, to, reply = std::move(reply)] {
    OpenJob* const open = Open(job);
    if (open == nullptr) return reply(TextResponse(404, "no such job"));
    reply({200, "application/json", open->watch->curve().JsonOfRange(from, to)});
  });
}

void ClusterFeed::Log(const std::string& job, const std::string& worker, const std::string& until,
                      http::Responder reply) {
  thread_.Post([this, job, worker, until, reply = std::move(reply)] {
    OpenJob* const open = Open(job);
    if (open == nullptr) return reply(TextResponse(404, "no such job"));
    const auto log = open->watch->Log(worker, until);
    reply(log.ok() ? http::Response{200, "text/plain; charset=utf-8", *log}
                   : TextResponse(404, log.error().message));
  });
}

void ClusterFeed::Tick() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  if (list_ && !list_->Tick()) list_.reset();
  for (auto& [key, open] : jobs_) {
    open.watch->Refresh();
    std::erase_if(open.subscribers, [&watch = *open.watch](Subscriber& one) { return !Send(watch, one); });
    if (!open.subscribers.empty()) open.used = Now();
  }
  CloseUnused();
}

void ClusterFeed::CloseUnused() {
  std::erase_if(jobs_, [](const auto& item) { return Now() - item.second.used > kKeep; });
}

bool ClusterFeed::Send(const JobWatch& watch, Subscriber& subscriber) {
  std::string text;
  const auto add = [&](const char* name, const JobWatch::Message& message, uint64_t& has) {
    if (message.version == has) return false;
    has = message.version;
    text += ServerSentEvent(name, message.data);
    return true;
  };
  add("run", watch.run(), subscriber.run);
  add("workers", watch.workers(), subscriber.workers);
  const ProgressCurve& curve = watch.curve();
  if (!subscriber.has_curve || subscriber.curve != curve.version()) {
    const bool more = subscriber.has_curve && subscriber.rewritten == curve.rewritten();
    text += ServerSentEvent("steps", curve.Json(more && subscriber.points > 0 ? subscriber.points - 1 : 0));
    subscriber.has_curve = true;
    subscriber.curve = curve.version();
    subscriber.rewritten = curve.rewritten();
    subscriber.points = curve.size();
  }
  add("busy", watch.busy(), subscriber.busy);
  add("events", watch.events(), subscriber.events);
  if (watch.gang().version != subscriber.gang) {
    subscriber.gang = watch.gang().version;
    text += ServerSentEvent("gang", watch.GangNow());
  }
  // An empty piece only asks whether the client is still there.
  return subscriber.stream.Write(std::move(text));
}

}  // namespace ringmaster::cli
