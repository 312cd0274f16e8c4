// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/event_recorder.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {
namespace {

const Resource kEvents{"events.k8s.io", "v1", "events"};
constexpr size_t kMaxNoteBytes = 1024;
constexpr size_t kMaxReasonBytes = 128;

// At most `limit` bytes, not in the middle of a character.
std::string Cut(const std::string& text, size_t limit) {
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
          {"reportingInstance", Cut(instance, kMaxReasonBytes)},
          {"action", "Reconcile"},
          {"reason", Cut(event.reason, kMaxReasonBytes)},
          {"note", Cut(event.note, kMaxNoteBytes)},
          {"type", event.warning ? "Warning" : "Normal"},
          {"regarding",
           {{"apiVersion", "ringmaster.dev/v1alpha1"},
            {"kind", "TrainingJob"},
            {"namespace", event.subject.namespace_},
            {"name", event.subject.name},
            {"uid", event.subject.uid}}}};
}

class EventRecorder::Shared {
 public:
  explicit Shared(EventCorrelator::Options options) : correlator_(std::move(options)) {}

  void Note(const EventSubject& subject, bool warning, const std::string& reason, const std::string& note) {
    std::lock_guard lock(mutex_);
    correlator_.Note(subject, warning, reason, note, Now());
    noted_ = true;
    ready_.notify_all();
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ready_.notify_all();
  }
  // What is to be sent; false after Close, when nothing is left.
  bool Take(EventCorrelator::Writes& writes) {
    std::unique_lock lock(mutex_);
    const auto something = [&] { return closed_ || noted_; };
    if (const Time due = correlator_.NextWakeup(); due == kNever)
      ready_.wait(lock, something);
    else
      ready_.wait_until(lock, due, something);
    noted_ = false;
    writes = correlator_.Take(Now());
    return !closed_ || !writes.create.empty() || !writes.update.empty();
  }
  int64_t dropped() const {
    std::lock_guard lock(mutex_);
    return correlator_.dropped();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  EventCorrelator correlator_;
  bool noted_ = false;
  bool closed_ = false;
};

EventRecorder::EventRecorder(ApiClient& api, Options options)
    : api_(api), options_(std::move(options)), shared_(std::make_shared<Shared>(options_.correlator)) {
  thread_ = std::thread([this] { Run(); });
}

EventRecorder::~EventRecorder() {
  shared_->Close();
  thread_.join();
}

void EventRecorder::Note(const EventSubject& subject, bool warning, const std::string& reason,
                         const std::string& note) {
  shared_->Note(subject, warning, reason, note);
}

int64_t EventRecorder::dropped() const { return shared_->dropped(); }

void EventRecorder::Run() {
  const auto log_failure = [](const Result<Json>& result) {
    if (!result.ok()) log::Warn("event=lost error={}", result.error().message);
  };
  EventCorrelator::Writes writes;
  while (shared_->Take(writes)) {
    if (options_.may_write && !options_.may_write()) continue;
    const std::string now = WallTimeText(WallNow());
    for (const CreateEvent& event : writes.create)
      api_.Create(kEvents, event.subject.namespace_, ToEvent(event, options_.instance, now), log_failure,
                  ApiClient::Response::kMetadata);
    for (const UpdateSeries& event : writes.update) {
      Json patch = {{"series", {{"count", event.count}, {"lastObservedTime", now}}}};
      if (!event.note.empty()) patch["note"] = Cut(event.note, kMaxNoteBytes);
      api_.Patch(kEvents, event.namespace_, event.name, "", ApiClient::PatchType::kMerge, patch, log_failure);
    }
  }
}

}  // namespace ringmaster::kube
