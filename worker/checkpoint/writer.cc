// SPDX-License-Identifier: Apache-2.0

// A Writer that runs a Publisher in a background thread.
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/mutex.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/publisher.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

void CheckSnapshot(const Snapshot& snapshot) {
  CHECK(snapshot.step >= 0, "step {}", snapshot.step);
  std::set<std::string> names;
  for (const Array& array : snapshot.arrays) {
    const size_t element = ElementBytes(array.type);
    CHECK(element > 0 && array.bytes.size() % element == 0, "array {} of type {}", array.name, array.type);
    CHECK(!array.name.empty() && names.insert(array.name).second, "array name {}", array.name);
  }
}

class BackgroundWriter final : public Writer {
 public:
  BackgroundWriter(const std::string& folder, int keep, const std::string& unique)
      : publisher_(&PosixFiles(), folder, keep, unique), thread_([this] { Run(); }) {}

  ~BackgroundWriter() override {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

  Status Start(const Snapshot& snapshot) override {
    CheckSnapshot(snapshot);
    MutexLock lock(mutex_);
    while (busy_) changed_.Wait(lock);
    const auto found = published_.find(snapshot.step);
    if (found != published_.end() && found->second == snapshot.state && model_ == snapshot.model) return Ok();
    // The thread does not use copy_ while busy_ is false.
    try {
      Fill(snapshot);
    } catch (const std::bad_alloc&) {
      copy_ = Copy{};
      return Error{
          Code::kExhausted,
          fmt::format("checkpoint of step {}: not enough memory for the copy; give the worker more memory",
                      snapshot.step)};
    }
    busy_ = true;
    lock.Unlock();
    changed_.NotifyAll();
    return Ok();
  }

  bool Idle(Duration limit) override {
    MutexLock lock(mutex_);
    const Time deadline = Now() + limit;
    while (busy_) {
      if (!changed_.WaitUntil(lock, deadline)) return !busy_;
    }
    return true;
  }

  Result<int64_t> Poll() override {
    const MutexLock lock(mutex_);
    if (unreported_.has_value()) {
      Error error = *std::move(unreported_);
      unreported_.reset();
      return error;
    }
    return published_.empty() ? -1 : published_.rbegin()->first;
  }

  Status Wait() override {
    MutexLock lock(mutex_);
    while (busy_) changed_.Wait(lock);
    if (!last_.ok()) unreported_.reset();  // reported here
    return last_;
  }

 private:
  // Reuses the memory of the last copy: the sizes are the same.
  void Fill(const Snapshot& snapshot) {
    copy_.step = snapshot.step;
    copy_.model = snapshot.model;
    copy_.meta = snapshot.meta;
    copy_.state = snapshot.state;
    copy_.attempt = snapshot.attempt;
    hash_state_ = snapshot.hash_state;
    copy_.arrays.resize(snapshot.arrays.size());
    for (size_t i = 0; i < snapshot.arrays.size(); ++i) {
      const Array& from = snapshot.arrays[i];
      copy_.arrays[i].name = from.name;
      copy_.arrays[i].type = from.type;
      copy_.arrays[i].bytes.assign(from.bytes.begin(), from.bytes.end());
    }
  }

  void Run() {
    MutexLock lock(mutex_);
    while (true) {
      while (!busy_ && !stop_) changed_.Wait(lock);
      if (!busy_) return;  // stopped, and nothing left to write
      lock.Unlock();
      const Status outcome = PublishCopy();
      lock.Lock();
      if (outcome.ok()) {
        published_[copy_.step] = copy_.state;
        model_ = copy_.model;
      } else {
        unreported_ = outcome.error();
      }
      last_ = outcome;
      busy_ = false;
      changed_.NotifyAll();
    }
  }

  Status PublishCopy() {
    try {
      RM_TRY(CheckCopy());
      return publisher_.Publish(copy_);
    } catch (const std::exception& e) {
      return Error{Code::kExhausted, fmt::format("checkpoint of step {}: {}", copy_.step, e.what())};
    }
  }

  // The copy is what is written, and the members of the run have compared the hashes of the original: a bit
  // that memory changed meanwhile must not become the only state.
  Status CheckCopy() {
    if (hash_state_ == nullptr) return Ok();
    std::vector<Array> arrays;
    for (Copy::Array& array : copy_.arrays) arrays.push_back({array.name, array.type, array.bytes});
    const std::string state = hash_state_(arrays);
    if (copy_.state.empty()) copy_.state = state;
    if (state == copy_.state) return Ok();
    return Error{
        Code::kCorrupt,
        fmt::format("checkpoint of step {}: the copy of the state has the hashes {} instead of {}: the "
                    "memory of this worker has changed it",
                    copy_.step, state, copy_.state)};
  }

  // Not guarded by mutex_: the thread uses them while busy_ is true, the owner while it is false.
  Publisher publisher_;
  Copy copy_;
  std::function<std::string(const std::vector<Array>&)> hash_state_;

  Mutex mutex_;
  CondVar changed_;
  bool busy_ RM_GUARDED_BY(mutex_) = false;  // a write is in progress
  bool stop_ RM_GUARDED_BY(mutex_) = false;
  std::map<int64_t, std::string> published_ RM_GUARDED_BY(mutex_);  // with their states
  std::string model_ RM_GUARDED_BY(mutex_);
  std::optional<Error> unreported_ RM_GUARDED_BY(mutex_);  // for Poll
  Status last_ RM_GUARDED_BY(mutex_);                      // for Wait
  std::thread thread_;                                     // last: it uses all other members
};

}  // namespace

Result<std::unique_ptr<Writer>> Writer::Create(const std::string& folder, int keep,
                                               const std::string& unique) {
  if (folder.empty()) return Error{Code::kInvalid, "the checkpoint folder is empty"};
  if (keep < 1) return Error{Code::kInvalid, fmt::format("keep must be at least 1 (got {})", keep)};
  const Status made = MakeFolder(folder);
  if (!made.ok()) {
    return Error{
        made.error().code,
        made.error().message + "; make it writable for the worker, or choose another checkpoint folder"};
  }
  // Remove what dead processes left: it may be what fills the disk.
  Sweep(&PosixFiles(), folder);
  return std::unique_ptr<Writer>(std::make_unique<BackgroundWriter>(folder, keep, unique));
}

}  // namespace ringmaster::checkpoint
