// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/event_recorder.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {
namespace {

const Resource kEvents{"events.k8s.io", "v1", "events"};
constexpr size_t kMaxNoteBytes = 1024;
constexpr size_t kMaxReasonBytes = 128;

// Returns at most `limit` bytes, and does not split a UTF-8 character.
std::string Truncate(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

Json ToEvent(const CreateEvent& event, const std::string& instance, const std::string& now) {
  return {{"apiVersion", kEvents.ApiVersion()},
          {"kind", "Event"},
          {"metadata", {{"name", event.name}, {"namespace", event.subject.namespace_}}},
          {"eventTime", now},
          {"reportingController", "ringmaster.dev/operator"},
          {"reportingInstance", Truncate(instance, kMaxReasonBytes)},
          {"action", "Reconcile"},
          {"reason", Truncate(event.reason, kMaxReasonBytes)},
          {"note", Truncate(event.note, kMaxNoteBytes)},
          {"type", event.warning ? "Warning" : "Normal"},
          {"regarding",
           {{"apiVersion", "ringmaster.dev/v1alpha1"},
            {"kind", "TrainingJob"},
            {"namespace", event.subject.namespace_},
            {"name", event.subject.name},
            {"uid", event.subject.uid}}}};
}

class EventRecorder::Queue {
 public:
  explicit Queue(EventCorrelator::Options options) : correlator_(std::move(options)) {}

  void Add(const EventSubject& subject, bool warning, const std::string& reason, const std::string& note) {
    MutexLock lock(mutex_);
    correlator_.Add(subject, warning, reason, note, Now());
    added_ = true;
    ready_.NotifyAll();
  }
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    ready_.NotifyAll();
  }
  // Waits for writes. Returns false after Close, once no write is left.
  bool Take(EventCorrelator::Writes& writes) {
    MutexLock lock(mutex_);
    const Time due = correlator_.NextWakeup();
    while (!closed_ && !added_)
      if (!ready_.WaitUntil(lock, due)) break;
    added_ = false;
    writes = correlator_.Take(Now());
    return !closed_ || !writes.create.empty() || !writes.update.empty();
  }
  int64_t dropped() const {
    MutexLock lock(mutex_);
    return correlator_.dropped();
  }

 private:
  mutable Mutex mutex_;
  CondVar ready_;
  EventCorrelator correlator_ RM_GUARDED_BY(mutex_);
  bool added_ RM_GUARDED_BY(mutex_) = false;
  bool closed_ RM_GUARDED_BY(mutex_) = false;
};

EventRecorder::EventRecorder(ApiClient& api, Options options)
    : api_(api), options_(std::move(options)), queue_(std::make_shared<Queue>(options_.correlator)) {
  thread_ = std::thread([this] { Run(); });
}

EventRecorder::~EventRecorder() {
  queue_->Close();
  thread_.join();
}

void EventRecorder::Record(const EventSubject& subject, bool warning, const std::string& reason,
                           const std::string& note) {
  queue_->Add(subject, warning, reason, note);
}

int64_t EventRecorder::dropped() const { return queue_->dropped(); }

void EventRecorder::Run() {
  const auto log_failure = [](const std::string& what) {
    return [what](const Result<Json>& result) {
      if (!result.ok()) log::Warn("{} event=lost: {}", what, result.error().message);
    };
  };
  EventCorrelator::Writes writes;
  while (queue_->Take(writes)) {
    if (options_.may_write && !options_.may_write()) continue;
    const std::string now = WallTimeText(WallNow());
    for (const CreateEvent& event : writes.create)
      api_.Create(kEvents, event.subject.namespace_, ToEvent(event, options_.instance, now),
                  log_failure(fmt::format("job={}/{} reason={}", event.subject.namespace_, event.subject.name,
                                          event.reason)),
                  ApiClient::Response::kMetadata);
    for (const UpdateSeries& event : writes.update) {
      Json patch = {{"series", {{"count", event.count}, {"lastObservedTime", now}}}};
      if (!event.note.empty()) patch["note"] = Truncate(event.note, kMaxNoteBytes);
      api_.Patch(kEvents, event.namespace_, event.name, "", ApiClient::PatchType::kMerge, patch,
                 log_failure(fmt::format("name={}/{}", event.namespace_, event.name)));
    }
  }
}

}  // namespace ringmaster::kube
