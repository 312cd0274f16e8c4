// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/reflector.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/heap.h"
#include "base/json.h"
#include "base/mutex.h"
#include "operator/kube/watch/line.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// Wakes the thread for a turn, or ends it.
class Reflectors::Signal {
 public:
  void Wake() {
    MutexLock lock(mutex_);
    woken_ = true;
    changed_.NotifyOne();
  }
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyOne();
  }
  // Waits for Wake or `until`. Returns false after Close.
  bool Wait(Time until) {
    MutexLock lock(mutex_);
    while (!woken_ && !closed_)
      if (!changed_.WaitUntil(lock, until)) break;
    woken_ = false;
    return !closed_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ RM_GUARDED_BY(mutex_) = false;
  bool closed_ RM_GUARDED_BY(mutex_) = false;
};

// One collection. Responses carry the number of their request: those of an abandoned request are dropped. The
// sink is called with the lock held, so that no call follows Close.
class Reflectors::Member : public std::enable_shared_from_this<Member> {
 public:
  Member(ApiClient& client, Collection collection, ReflectorSink& sink, Watcher::Options options,
         std::shared_ptr<Signal> signal)
      : client_(client),
        collection_(std::move(collection)),
        sink_(sink),
        signal_(std::move(signal)),
        watcher_(options) {}

  // Sends what the watcher decides. Returns when the next turn is due. Only the reflectors' thread calls it.
  Time Turn() {
    while (true) {
      Watcher::Command command;
      uint64_t request = 0;
      {
        MutexLock lock(mutex_);
        if (retired_) return kNever;
        command = watcher_.Next(Now());
        if (const auto* wait = std::get_if<Watcher::Wait>(&command)) return wait->until;
        request = ++request_;
        if (std::holds_alternative<Watcher::List>(command)) sink_.Begin();
      }
      stream_.reset();  // without the lock, since it waits for a running callback
      if (std::holds_alternative<Watcher::List>(command)) List(request);
      if (const auto* watch = std::get_if<Watcher::Watch>(&command)) Watch(*watch, request);
    }
  }

  void Restart() {
    MutexLock lock(mutex_);
    watcher_.Restart(Now());
  }
  // Drops all responses that come from now on. The reflectors' thread closes the stream at its next turn.
  void Retire() {
    MutexLock lock(mutex_);
    ++request_;
    retired_ = true;
  }
  bool retired() const {
    MutexLock lock(mutex_);
    return retired_;
  }
  bool denied() const {
    MutexLock lock(mutex_);
    return denied_ && !retired_ && !collection_.optional;
  }
  const Resource& resource() const { return collection_.resource; }
  const std::string& space() const { return collection_.namespace_; }

  // Called by the thread that calls Stop, after the reflectors' thread has ended, and by that thread for a
  // retired member.
  void Close() {
    {
      MutexLock lock(mutex_);
      ++request_;
    }
    stream_.reset();
  }

  std::optional<std::string> Problem() const {
    MutexLock lock(mutex_);
    if (problem_.empty() || retired_ || collection_.optional) return std::nullopt;
    return collection_.resource.plural +
           (collection_.namespace_.empty() ? "" : " in " + collection_.namespace_) + ": " + problem_;
  }

 private:
  ListOptions Options() const {
    ListOptions options;
    options.namespace_ = collection_.namespace_;
    options.label_selector = collection_.label_selector;
    options.field_selector = collection_.field_selector;
    options.metadata_only = collection_.metadata_only;
    return options;
  }

  void List(uint64_t request) {
    auto self = shared_from_this();
    client_.List(
        collection_.resource, Options(),
        [self, request](Json items) {
          MutexLock lock(self->mutex_);
          if (request != self->request_ || self->watcher_.OnPage() != StoreEvent::kInitApply) return;
          if (!items.is_array()) return self->sink_.Begin();  // the list starts again
          for (const Json& item : items) self->sink_.Item(item);
        },
        [self, request](Result<Json> result) { self->OnListed(request, result); });
  }

  void OnListed(uint64_t request, const Result<Json>& result) {
    {
      MutexLock lock(mutex_);
      if (request != request_) return;
      const std::string version =
          result.ok() ? std::string(json::Text(*result, "resourceVersion")) : std::string();
      if (!result.ok()) {
        watcher_.OnListFailed(result.error(), Now());
        Note(result.error());
      } else if (ParseRevision(version) == 0) {
        const Error error{Code::kInvalid, "the list has no resourceVersion"};
        watcher_.OnListFailed(error, Now());
        Note(error);
      } else if (watcher_.OnListed(version, Now()) == StoreEvent::kInitDone) {
        sink_.End(ParseRevision(version));
        problem_.clear();
        denied_ = false;
      }
    }
    // The pages' JSON was many times as large as the records, and the allocator would keep that memory.
    TrimHeap();
    signal_->Wake();
  }

  void Watch(const Watcher::Watch& watch, uint64_t request) {
    ListOptions options = Options();
    options.resource_version = watch.resource_version;
    options.timeout_seconds = watch.timeout_seconds;
    auto self = shared_from_this();
    stream_ = client_.Watch(
        collection_.resource, options, true,
        [self, request](std::string_view text) { self->OnLine(request, text); },
        [self, request](Status status) { self->OnEnd(request, status); });
  }

  void OnLine(uint64_t request, std::string_view text) {
    const auto line = ParseWatchLine(text);
    MutexLock lock(mutex_);
    if (request != request_) return;
    const Revision revision = line.ok() ? ParseRevision(line->resource_version) : 0;
    if (!line.ok() || (revision == 0 && line->kind != LineKind::kError)) {
      watcher_.OnUnreadableLine(Now());
      Note(line.ok() ? Error{Code::kInvalid, "watch line: resourceVersion is not a number"} : line.error());
      return signal_->Wake();
    }
    switch (watcher_.OnLine(line->kind, line->resource_version, line->error_code, Now())) {
      case StoreEvent::kApply:
        sink_.Apply(line->object, revision);
        break;
      case StoreEvent::kDelete:
        sink_.Delete(line->object, revision);
        break;
      case StoreEvent::kBookmark:
        sink_.Bookmark(revision);
        break;
      default:
        break;
    }
    if (line->kind == LineKind::kError) {
      Note({line->error_code == 410 ? Code::kGone : Code::kUnavailable, line->error_message});
      return signal_->Wake();
    }
    problem_.clear();
    denied_ = false;
  }

  void OnEnd(uint64_t request, const Status& status) {
    {
      MutexLock lock(mutex_);
      if (request != request_) return;
      watcher_.OnEnd(status, Now());
      if (!status.ok()) Note(status.error());
    }
    signal_->Wake();
  }

  void Note(const Error& error) RM_REQUIRES(mutex_) {
    problem_ = error.message.empty() ? CodeName(error.code) : error.message;
    denied_ = error.code == Code::kForbidden && !collection_.namespace_.empty();
    if (denied_) sink_.Deny();
    if (collection_.on_failure) collection_.on_failure(error);
  }

  ApiClient& client_;
  const Collection collection_;
  ReflectorSink& sink_;
  const std::shared_ptr<Signal> signal_;
  mutable Mutex mutex_;
  Watcher watcher_ RM_GUARDED_BY(mutex_);
  uint64_t request_ RM_GUARDED_BY(mutex_) = 0;
  bool retired_ RM_GUARDED_BY(mutex_) = false;
  std::string problem_ RM_GUARDED_BY(mutex_) = "not listed yet";
  bool denied_ RM_GUARDED_BY(mutex_) = false;  // of a namespace
  std::unique_ptr<HttpStream>
      stream_;  // used by the reflectors' thread, and by Close after that thread has ended
};

Reflectors::Reflectors(ApiClient& client, Watcher::Options options, std::function<Time(Time)> housekeeping)
    : client_(client),
      options_(options),
      housekeeping_(std::move(housekeeping)),
      signal_(std::make_shared<Signal>()) {}

Reflectors::~Reflectors() { Stop(); }

void Reflectors::Add(Collection collection, ReflectorSink& sink) {
  {
    MutexLock lock(mutex_);
    Watcher::Options options = options_;
    options.seed = KeyedRandom(options_.seed, members_.size());
    members_.push_back(std::make_shared<Member>(client_, std::move(collection), sink, options, signal_));
  }
  signal_->Wake();
}

void Reflectors::Retire(const Resource& resource) {
  for (const auto& member : Members())
    if (member->resource() == resource) member->Retire();
  signal_->Wake();
}

void Reflectors::CloseRetired() {
  for (const auto& member : Members())
    if (member->retired()) member->Close();
  MutexLock lock(mutex_);
  std::erase_if(members_, [](const auto& member) { return member->retired(); });
}

std::vector<std::shared_ptr<Reflectors::Member>> Reflectors::Members() const {
  MutexLock lock(mutex_);
  return members_;
}

void Reflectors::Start() {
  thread_ = std::thread([this] {
    Time next = Time::min();
    while (signal_->Wait(next)) {
      next = kNever;
      CloseRetired();
      for (const auto& member : Members()) next = std::min(next, member->Turn());
      if (housekeeping_) next = std::min(next, housekeeping_(Now()));
    }
  });
}

void Reflectors::Stop() {
  signal_->Close();
  if (thread_.joinable()) thread_.join();
  for (const auto& member : Members()) member->Close();
}

void Reflectors::ListAgain() {
  for (const auto& member : Members()) member->Restart();
  signal_->Wake();
}

void Reflectors::Wake() { signal_->Wake(); }

std::vector<std::string> Reflectors::Problems() const {
  const auto members = Members();
  std::set<std::string> denied = Denied();
  const bool all = std::all_of(members.begin(), members.end(), [&](const auto& member) {
    return member->space().empty() || denied.contains(member->space());
  });
  if (all) denied.clear();
  std::vector<std::string> problems;
  for (const auto& member : members) {
    if (denied.contains(member->space())) continue;
    if (auto problem = member->Problem()) problems.push_back(*std::move(problem));
  }
  return problems;
}

std::set<std::string> Reflectors::Denied() const {
  std::set<std::string> denied;
  for (const auto& member : Members())
    if (member->denied()) denied.insert(member->space());
  return denied;
}

}  // namespace ringmaster::kube
