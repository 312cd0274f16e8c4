// SPDX-License-Identifier: Apache-2.0

// The background thread around a Publisher.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/publisher.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

void CheckSnapshot(const Snapshot& snapshot) {
  CHECK(snapshot.step >= 0, "step {}", snapshot.step);
  std::set<std::string> names;
  for (const Array& array : snapshot.arrays) {
    CHECK(IsArrayType(array.type) && array.bytes.size() % 4 == 0, "array {} of type {}", array.name,
          array.type);
    CHECK(!array.name.empty() && names.insert(array.name).second, "array name {}", array.name);
  }
}

class BackgroundWriter final : public Writer {
 public:
  BackgroundWriter(const std::string& folder, int keep, const std::string& unique)
      : publisher_(&PosixFiles(), folder, keep, unique), thread_([this] { Run(); }) {}

  ~BackgroundWriter() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Status Start(const Snapshot& snapshot) override {
    CheckSnapshot(snapshot);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
    if (published_.contains(snapshot.step) && model_ == snapshot.model) return Ok();
    // The thread sleeps while it is not busy, so the copy is ours to change.
    try {
      Fill(snapshot);
    } catch (const std::bad_alloc&) {
      copy_ = Copy{};
      return Error{Code::kExhausted,
                   fmt::format("checkpoint of step {}: no memory for the copy; give the worker more memory",
                               snapshot.step)};
    }
    busy_ = true;
    lock.unlock();
    changed_.notify_all();
    return Ok();
  }

  bool Idle(Duration limit) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return !busy_; });
  }

  Result<int64_t> Poll() override {
    const std::lock_guard lock(mutex_);
    if (unreported_.has_value()) {
      Error error = *std::move(unreported_);
      unreported_.reset();
      return error;
    }
    return published_.empty() ? -1 : *published_.rbegin();
  }

  Status Wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
    if (!last_.ok()) unreported_.reset();  // reported here
    return last_;
  }

 private:
  // Keeps the memory of the last copy: the next one has the same sizes.
  void Fill(const Snapshot& snapshot) {
    copy_.step = snapshot.step;
    copy_.model = snapshot.model;
    copy_.meta = snapshot.meta;
    copy_.arrays.resize(snapshot.arrays.size());
    for (size_t i = 0; i < snapshot.arrays.size(); ++i) {
      const Array& from = snapshot.arrays[i];
      copy_.arrays[i].name = from.name;
      copy_.arrays[i].type = from.type;
      copy_.arrays[i].bytes.assign(from.bytes.begin(), from.bytes.end());
    }
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return busy_ || stop_; });
      if (!busy_) return;  // stopped, and nothing left to write
      lock.unlock();
      const Status outcome = PublishCopy();
      lock.lock();
      if (outcome.ok()) {
        published_.insert(copy_.step);
        model_ = copy_.model;
      } else {
        unreported_ = outcome.error();
      }
      last_ = outcome;
      busy_ = false;
      changed_.notify_all();
    }
  }

  Status PublishCopy() {
    try {
      return publisher_.Publish(copy_);
    } catch (const std::exception& e) {
      return Error{Code::kExhausted, fmt::format("checkpoint of step {}: {}", copy_.step, e.what())};
    }
  }

  // Touched by the thread while busy_, by the owner while not.
  Publisher publisher_;
  Copy copy_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;
  bool stop_ = false;
  std::set<int64_t> published_;
  std::string model_;
  std::optional<Error> unreported_;
  Status last_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

Result<std::unique_ptr<Writer>> Writer::Create(const std::string& folder, int keep,
                                               const std::string& unique) {
  if (folder.empty()) return Error{Code::kInvalid, "the checkpoint folder is not named"};
  if (keep < 1) return Error{Code::kInvalid, fmt::format("keep must be at least 1 (got {})", keep)};
  const Status made = MakeFolder(folder);
  if (!made.ok()) {
    return Error{
        made.error().code,
        made.error().message + "; make it writable for the worker, or choose another checkpoint folder"};
  }
  // What a dead process left is removed now: it may be what fills the disk.
  Sweep(&PosixFiles(), folder);
  return std::unique_ptr<Writer>(std::make_unique<BackgroundWriter>(folder, keep, unique));
}

}  // namespace ringmaster::checkpoint
