// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"

namespace ringmaster::fabric::nccl {
namespace {

constexpr Duration kBusyPoll = milliseconds(1);   // somebody waits for the answer
constexpr Duration kCalmPoll = milliseconds(20);  // so soon an error is noticed
constexpr Duration kSpin = std::chrono::microseconds(50);
constexpr Duration kNap = std::chrono::microseconds(20);

bool WentWell(int answer) { return answer == kSuccess || answer == kInProgress; }

// Waits a little: most of what is waited for comes at once.
class Patience {
 public:
  void Rest() {
    if (Now() - begin_ < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

 private:
  const Time begin_ = Now();
};

bool Over(Phase phase) {
  return phase == Phase::kParked || phase == Phase::kGone || phase == Phase::kLeaving;
}

}  // namespace

Live::Live(const Api* api, const LiveOptions* options, const std::atomic<bool>* cancel)
    : api_(*api), options_(*options), cancel_(*cancel) {
  const Abilities abilities = {.revoke = api->revoke != nullptr, .shrink = api->shrink != nullptr};
  watchdog_ = StartWatchdog(options_.limits, abilities, Now());
  watcher_ = std::thread([this] { Watch(); });
}

Live::~Live() {
  Dispose();
  watcher_.join();
  if (call_.joinable()) call_.join();
}

Status Live::Form(const std::function<int(Handle*)>& begin) {
  int answer = kSuccess;
  {
    const std::lock_guard calls(calls_);
    if (!freed_) answer = begin(&handle_);
  }
  std::unique_lock lock(mutex_);
  begun_ = true;
  if (!WentWell(answer)) Feed(lock, Failed{answer, LastError(answer)});
  changed_.notify_all();
  changed_.wait(lock, [&] { return watchdog_.phase != Phase::kForming; });
  return Failure(lock);
}

Status Live::Shrink(Live* parent, std::vector<int> excluded, Configuration* configuration) {
  return FormFrom(parent, [&](Handle from, Handle* handle) {
    return api_.shrink(from, excluded.data(), static_cast<int>(excluded.size()), handle, configuration, 0);
  });
}

Status Live::Grow(Live* parent, int world, const UniqueId* id, Configuration* configuration) {
  return FormFrom(parent, [&](Handle from, Handle* handle) {
    grows_ = true;
    return api_.grow(from, world, id, -1, handle, configuration);
  });
}

Status Live::FormFrom(Live* parent, const Begin& begin) {
  const Status formed = Form([&](Handle* handle) {
    const std::lock_guard parent_calls(parent->calls_);
    if (parent->freed_) return static_cast<int>(kInvalidUsage);
    parent_ = parent;
    return begin(parent->handle_, handle);
  });
  const std::lock_guard calls(calls_);
  parent_ = nullptr;
  return formed;
}

// It sends to other ranks of the parent, and may hang: with calls_ held, so that the watchdog sees it.
int Live::AskForId(Live* parent, UniqueId* id) {
  const std::lock_guard calls(calls_);
  const std::lock_guard parent_calls(parent->calls_);
  return freed_ || parent->freed_ ? static_cast<int>(kInvalidUsage) : api_.grow_id(parent->handle_, id);
}

Status Live::Enqueue(const std::function<int(Handle)>& call) {
  if (cancel_) Tell(Ordered{});
  std::unique_lock calls(calls_);
  {
    std::unique_lock lock(mutex_);
    if (watchdog_.failure) return *watchdog_.failure;
  }
  int answer = call(handle_);
  if (answer == kInProgress) {
    calls.unlock();
    Tell(WaitBegan{});
    Patience patience;
    while (answer == kInProgress) {
      patience.Rest();
      calls.lock();
      {
        std::unique_lock lock(mutex_);
        if (watchdog_.failure) break;
      }
      if (const int asked = api_.async_error(handle_, &answer); asked != kSuccess) answer = asked;
      calls.unlock();
    }
    if (calls.owns_lock()) calls.unlock();
    Tell(WaitEnded{});
  } else {
    calls.unlock();
  }
  std::unique_lock lock(mutex_);
  if (!WentWell(answer)) Feed(lock, Failed{answer, LastError(answer)});
  return Failure(lock);
}

Status Live::Wait(Stream stream) {
  Tell(WaitBegan{});
  const Reached reached = options_.mark(stream);
  Patience patience;
  while (true) {
    const Result<bool> done = reached();
    std::unique_lock lock(mutex_);
    if (cancel_) Feed(lock, Ordered{});
    if (!done.ok()) Feed(lock, Failed{kUnhandledCudaError, done.error().message});
    if (watchdog_.failure) return Failure(lock);
    if (done.ok() && *done) {
      Feed(lock, WaitEnded{});
      return Failure(lock);
    }
    lock.unlock();
    patience.Rest();
  }
}

int Live::Call(const std::function<int(Handle)>& call) {
  const std::lock_guard calls(calls_);
  {
    std::unique_lock lock(mutex_);
    if (watchdog_.failure) return kInvalidUsage;
  }
  return call(handle_);
}

void Live::Release(bool clean) {
  if (clean && !cancel_) {
    Tell(Released{});
  } else {
    Tell(Ordered{});
  }
}

void Live::Dispose() { Tell(Disposed{}); }

Live::Rest Live::Settled() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return Over(watchdog_.phase); });
  if (watchdog_.phase != Phase::kParked) return Rest::kNothing;
  return watchdog_.revoked ? Rest::kRevoked : Rest::kWhole;
}

// Ok while it runs. After a failure: when the GPU has nothing to do with the caller's memory any more.
Status Live::Failure(std::unique_lock<std::mutex>& lock) {
  if (!watchdog_.failure) return Ok();
  changed_.wait(lock, [&] { return Over(watchdog_.phase); });
  return *watchdog_.failure;
}

void Live::Watch() {
  std::unique_lock lock(mutex_);
  while (watchdog_.phase != Phase::kGone && watchdog_.phase != Phase::kLeaving) {
    if (watchdog_.phase == Phase::kParked) {
      changed_.wait(lock);
    } else if (!begun_) {
      changed_.wait_until(lock, std::min(watchdog_.due, Now() + kCalmPoll));
      if (cancel_) Feed(lock, Ordered{});
    } else {
      const bool busy = watchdog_.phase != Phase::kRunning || watchdog_.waits > 0;
      changed_.wait_until(lock, std::min(watchdog_.due, Now() + (busy ? kBusyPoll : kCalmPoll)));
      if (cancel_) Feed(lock, Ordered{});
      Poll(lock);
    }
    if (Now() >= watchdog_.due) Feed(lock, Tick{});
  }
  changed_.notify_all();
}

void Live::Poll(std::unique_lock<std::mutex>& lock) {
  const Phase phase = watchdog_.phase;
  if (watchdog_.calling ||
      (phase != Phase::kForming && phase != Phase::kRunning && phase != Phase::kRevoking))
    return;
  lock.unlock();
  int answer = kInProgress;
  if (calls_.try_lock()) {  // else somebody is in NCCL just now
    if (!freed_) answer = AskLibrary();
    calls_.unlock();
  }
  lock.lock();
  if (watchdog_.phase != phase || watchdog_.calling || answer == kInProgress) return;
  if (answer != kSuccess) {
    Feed(lock, Failed{answer, LastError(answer)});
  } else if (phase == Phase::kForming) {
    Feed(lock, Formed{});
  } else if (phase == Phase::kRevoking) {
    Feed(lock, Quiet{});
  }
}

// With calls_ held. A communicator that is being made of a larger one shows its troubles there, and has no
// handle until that one is done with it.
int Live::AskLibrary() {
  const auto ask = [this](Handle handle) {
    int answer = kSuccess;
    const int asked = api_.async_error(handle, &answer);
    return asked == kSuccess ? answer : asked;
  };
  if (parent_ != nullptr)
    if (const int answer = ask(parent_->handle_); answer != kSuccess) return answer;
  const Handle made = Made();
  return made == nullptr ? static_cast<int>(kInProgress) : ask(made);
}

// A handle that is not there at once is put there by a thread of NCCL's.
Handle Live::Made() { return std::atomic_ref<Handle>(handle_).load(std::memory_order_acquire); }

void Live::Tell(const Event& event) {
  std::unique_lock lock(mutex_);
  Feed(lock, event);
}

void Live::Feed(std::unique_lock<std::mutex>& lock, const Event& event) {
  const std::vector<Act> acts = Decide(&watchdog_, event, Now());
  for (const Act act : acts) {
    if (act == Act::kRevoke || act == Act::kAbort) StartCall(act);
    if (act == Act::kLeave) {
      const std::string why = LeaveReason(watchdog_);
      lock.unlock();
      options_.leave(why);
      lock.lock();
    }
  }
  changed_.notify_all();
}

void Live::StartCall(Act act) {
  // The one before has returned: that is what made this one necessary.
  std::thread before = std::move(call_);
  call_ = std::thread([this, act, before = std::move(before)]() mutable {
    if (before.joinable()) before.join();
    bool ok = true;
    {
      const std::lock_guard calls(calls_);
      ok = act == Act::kAbort ? Free() : WentWell(api_.revoke(handle_, 0));
    }
    Tell(CallReturned{ok});
  });
}

// With calls_ held. False: something of it may still run.
bool Live::Free() {
  if (std::exchange(freed_, true)) return true;
  const bool ended = EndMaking();
  const Handle made = Made();
  return (made == nullptr || WentWell(api_.abort(made))) && ended;
}

// With calls_ held. Who makes one from the parent waits for others by the parent's own connections. A larger
// one has its handle at once, but its abort does not reach so far. A smaller one has none before it is made,
// or has failed: until then only the end of the parent ends that, and by that end the handle is there and is
// ours to free. Nobody has a use for the parent any more.
bool Live::EndMaking() {
  if (parent_ == nullptr) return true;
  const std::lock_guard parent_calls(parent_->calls_);
  if (parent_->freed_) return true;
  if (grows_) {
    if (api_.revoke != nullptr) (void)api_.revoke(parent_->handle_, 0);
    return true;
  }
  if (Made() != nullptr) return true;
  parent_->freed_ = true;
  return WentWell(api_.abort(parent_->handle_));
}

std::string Live::LastError(int answer) const {
  // The text is of the process's newest failure: ncclGetLastError ignores its argument.
  const char* const last = api_.last_error(nullptr);
  const char* const name = api_.error_string(answer);
  const std::string kind = name == nullptr ? fmt::format("error {}", answer) : name;
  return last == nullptr || *last == '\0' ? kind : fmt::format("{} ({})", kind, last);
}

}  // namespace ringmaster::fabric::nccl
