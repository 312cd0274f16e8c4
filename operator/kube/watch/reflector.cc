// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/reflector.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/heap.h"
#include "base/json.h"
#include "operator/kube/watch/line.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// What wakes the thread: a turn that is wanted now, or the end.
class Reflectors::Thread {
 public:
  void Wake() {
    std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  // False: it is over.
  bool Wait(Time until) {
    std::unique_lock lock(mutex_);
    const auto wake = [this] { return woken_ || closed_; };
    if (until == kNever)
      changed_.wait(lock, wake);
    else
      changed_.wait_until(lock, until, wake);
    woken_ = false;
    return !closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  bool closed_ = false;
};

// One collection. Answers carry the number of the request they belong to: those of a request that was given
// up are dropped. The lock is held while the sink is called, so that nothing comes after Close.
class Reflectors::Member : public std::enable_shared_from_this<Member> {
 public:
  Member(ApiClient& client, Collection collection, ReflectorSink& sink, Watcher::Options options,
         std::shared_ptr<Thread> thread)
      : client_(client),
        collection_(std::move(collection)),
        sink_(sink),
        thread_(std::move(thread)),
        watcher_(options) {}

  // By the reflectors' thread alone. When the next turn is due.
  Time Turn() {
    while (true) {
      Watcher::Command command;
      uint64_t request = 0;
      {
        std::lock_guard lock(mutex_);
        command = watcher_.Next(Now());
        if (const auto* wait = std::get_if<Watcher::Wait>(&command)) return wait->until;
        request = ++request_;
        if (std::holds_alternative<Watcher::List>(command)) sink_.Begin();
      }
      stream_.reset();  // waits for a callback that runs: not under the lock
      if (std::holds_alternative<Watcher::List>(command)) List(request);
      if (const auto* watch = std::get_if<Watcher::Watch>(&command)) Watch(*watch, request);
    }
  }

  // By the thread that stops.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      ++request_;
    }
    stream_.reset();
  }

  std::optional<std::string> Problem() const {
    std::lock_guard lock(mutex_);
    if (problem_.empty()) return std::nullopt;
    return collection_.resource.plural +
           (collection_.namespace_.empty() ? "" : " in " + collection_.namespace_) + ": " + problem_;
  }

 private:
  ListOptions Options() const {
    ListOptions options;
    options.namespace_ = collection_.namespace_;
    options.label_selector = collection_.label_selector;
    options.metadata_only = collection_.metadata_only;
    return options;
  }

  void List(uint64_t request) {
    auto self = shared_from_this();
    client_.List(
        collection_.resource, Options(),
        [self, request](Json items) {
          std::lock_guard lock(self->mutex_);
          if (request != self->request_ || self->watcher_.OnPage() != StoreEvent::kInitApply) return;
          if (!items.is_array()) return self->sink_.Begin();  // the list began anew
          for (const Json& item : items) self->sink_.Item(item);
        },
        [self, request](Result<Json> result) { self->OnListed(request, result); });
  }

  void OnListed(uint64_t request, const Result<Json>& result) {
    {
      std::lock_guard lock(mutex_);
      if (request != request_) return;
      const std::string version =
          result.ok() ? std::string(json::Text(*result, "resourceVersion")) : std::string();
      if (!result.ok()) {
        watcher_.OnListFailed(result.error(), Now());
        Note(result.error());
      } else if (ParseRevision(version) == 0) {
        const Error error{Code::kInvalid, "a list without a resourceVersion"};
        watcher_.OnListFailed(error, Now());
        Note(error);
      } else if (watcher_.OnListed(version, Now()) == StoreEvent::kInitDone) {
        sink_.End(ParseRevision(version));
        problem_.clear();
      }
    }
    // The pages' JSON was many times as large as what is kept of it, and the allocator would keep that room.
    TrimHeap();
    thread_->Wake();
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
    std::lock_guard lock(mutex_);
    if (request != request_) return;
    const Revision revision = line.ok() ? ParseRevision(line->resource_version) : 0;
    if (!line.ok() || (revision == 0 && line->kind != LineKind::kError)) {
      watcher_.OnUnreadableLine(Now());
      Note(line.ok() ? Error{Code::kInvalid, "a line of a watch: resourceVersion is not a number"}
                     : line.error());
      return thread_->Wake();
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
      return thread_->Wake();
    }
    problem_.clear();
  }

  void OnEnd(uint64_t request, const Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (request != request_) return;
      watcher_.OnEnd(status, Now());
      if (!status.ok()) Note(status.error());
    }
    thread_->Wake();
  }

  void Note(const Error& error) {
    problem_ = error.message.empty() ? CodeName(error.code) : error.message;
    if (collection_.on_failure) collection_.on_failure(error);
  }

  ApiClient& client_;
  const Collection collection_;
  ReflectorSink& sink_;
  const std::shared_ptr<Thread> thread_;
  mutable std::mutex mutex_;
  Watcher watcher_;
  uint64_t request_ = 0;
  std::string problem_ = "not listed yet";
  std::unique_ptr<HttpStream> stream_;  // the reflectors' thread's alone, and Close's after it
};

Reflectors::Reflectors(ApiClient& client, Watcher::Options options, std::function<Time(Time)> housekeeping)
    : client_(client),
      options_(options),
      housekeeping_(std::move(housekeeping)),
      shared_(std::make_shared<Thread>()) {}

Reflectors::~Reflectors() { Stop(); }

void Reflectors::Add(Collection collection, ReflectorSink& sink) {
  {
    std::lock_guard lock(mutex_);
    Watcher::Options options = options_;
    options.seed = KeyedRandom(options_.seed, members_.size());
    members_.push_back(std::make_shared<Member>(client_, std::move(collection), sink, options, shared_));
  }
  shared_->Wake();
}

std::vector<std::shared_ptr<Reflectors::Member>> Reflectors::Members() const {
  std::lock_guard lock(mutex_);
  return members_;
}

void Reflectors::Start() {
  thread_ = std::thread([this] {
    Time next = Time::min();
    while (shared_->Wait(next)) {
      next = kNever;
      for (const auto& member : Members()) next = std::min(next, member->Turn());
      if (housekeeping_) next = std::min(next, housekeeping_(Now()));
    }
  });
}

void Reflectors::Stop() {
  shared_->Close();
  if (thread_.joinable()) thread_.join();
  for (const auto& member : Members()) member->Close();
}

void Reflectors::Wake() { shared_->Wake(); }

std::vector<std::string> Reflectors::Problems() const {
  std::vector<std::string> problems;
  for (const auto& member : Members())
    if (auto problem = member->Problem()) problems.push_back(*std::move(problem));
  return problems;
}

}  // namespace ringmaster::kube
