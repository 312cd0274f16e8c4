// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/managed_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"

namespace ringmaster::fabric::nccl {
namespace {

constexpr Duration kBusyPoll = milliseconds(1);   // while a thread waits for the result
constexpr Duration kCalmPoll = milliseconds(20);  // otherwise; an error is noticed within this time
constexpr Duration kSpin = std::chrono::microseconds(50);
constexpr Duration kSleep = std::chrono::microseconds(20);

// Pauses between two polls: yields first, since most results come at once, and sleeps later.
class Backoff {
 public:
  void Pause() {
    if (Now() - begin_ < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  const Time begin_ = Now();
};

bool HasStopped(Phase phase) {
  return phase == Phase::kParked || phase == Phase::kGone || phase == Phase::kExiting;
}

}  // namespace

ManagedCommunicator::ManagedCommunicator(const Api* api, const ManagedOptions* options,
                                         const std::atomic<bool>* cancel)
    : api_(*api), options_(*options), cancel_(*cancel) {
  const Capabilities capabilities = {.revoke = api->revoke != nullptr, .shrink = api->shrink != nullptr};
  watchdog_ = StartWatchdog(options_.limits, capabilities, Now());
  watcher_ = std::thread([this] { Watch(); });
}

ManagedCommunicator::~ManagedCommunicator() {
  Dispose();
  watcher_.join();
  if (call_.joinable()) call_.join();
}

Status ManagedCommunicator::Form(const std::function<int(Handle*)>& begin) {
  int result = kSuccess;
  {
    const MutexLock calls(calls_);
    if (!freed_) result = begin(&handle_);
  }
  return WaitUntilFormed(result);
}

Status ManagedCommunicator::Shrink(ManagedCommunicator* parent, std::vector<int> excluded,
                                   Configuration* configuration) {
  return FormFrom(parent, false, [&](Handle from, Handle* handle) {
    return api_.shrink(from, excluded.data(), static_cast<int>(excluded.size()), handle, configuration, 0);
  });
}

Status ManagedCommunicator::Grow(ManagedCommunicator* parent, int world, const UniqueId* id,
                                 Configuration* configuration) {
  return FormFrom(parent, true, [&](Handle from, Handle* handle) {
    return api_.grow(from, world, id, -1, handle, configuration);
  });
}

Status ManagedCommunicator::FormFrom(ManagedCommunicator* parent, bool grows, const Begin& begin) {
  int result = kSuccess;
  {
    const MutexLock calls(calls_);
    if (!freed_) result = BeginFrom(parent, grows, begin);
  }
  const Status formed = WaitUntilFormed(result);
  const MutexLock calls(calls_);
  parent_ = nullptr;
  return formed;
}

int ManagedCommunicator::BeginFrom(ManagedCommunicator* parent, bool grows, const Begin& begin) {
  const MutexLock parent_calls(parent->calls_);
  if (parent->freed_) return kInvalidUsage;
  parent_ = parent;
  grows_ = grows;
  return begin(parent->handle_, &handle_);
}

Status ManagedCommunicator::WaitUntilFormed(int result) {
  MutexLock lock(mutex_);
  begun_ = true;
  if (!Succeeded(result)) Apply(Failed{result, LastError(result)});
  changed_.NotifyAll();
  while (watchdog_.phase == Phase::kForming) changed_.Wait(lock);
  return Failure(lock);
}

// NCCL sends to other ranks of the parent here, and may hang. It is called with calls_ held, so that the
// watchdog notices.
int ManagedCommunicator::GetGrowId(ManagedCommunicator* parent, UniqueId* id) {
  const MutexLock calls(calls_);
  const MutexLock parent_calls(parent->calls_);
  return freed_ || parent->freed_ ? static_cast<int>(kInvalidUsage) : api_.grow_id(parent->handle_, id);
}

Status ManagedCommunicator::Enqueue(const std::function<int(Handle)>& call) {
  if (cancel_) Post(Cancelled{});
  int result = kSuccess;
  {
    const MutexLock calls(calls_);
    {
      const MutexLock lock(mutex_);
      if (watchdog_.failure) return *watchdog_.failure;
    }
    result = call(handle_);
  }
  if (result == kInProgress) {
    Post(WaitStarted{});
    Backoff backoff;
    while (result == kInProgress) {
      backoff.Pause();
      const MutexLock calls(calls_);
      {
        const MutexLock lock(mutex_);
        if (watchdog_.failure) break;
      }
      if (const int asked = api_.async_error(handle_, &result); asked != kSuccess) result = asked;
    }
    Post(WaitEnded{});
  }
  MutexLock lock(mutex_);
  if (!Succeeded(result)) Apply(Failed{result, LastError(result)});
  return Failure(lock);
}

Status ManagedCommunicator::Wait(Stream stream) {
  Post(WaitStarted{});
  const EventQuery reached = options_.record_event(stream);
  Backoff backoff;
  while (true) {
    const Result<bool> done = reached();
    MutexLock lock(mutex_);
    if (cancel_) Apply(Cancelled{});
    if (!done.ok()) Apply(Failed{kUnhandledCudaError, done.error().message});
    if (watchdog_.failure) return Failure(lock);
    if (done.ok() && *done) {
      Apply(WaitEnded{});
      return Failure(lock);
    }
    lock.Unlock();
    backoff.Pause();
  }
}

int ManagedCommunicator::Call(const std::function<int(Handle)>& call) {
  const MutexLock calls(calls_);
  {
    MutexLock lock(mutex_);
    if (watchdog_.failure) return kInvalidUsage;
  }
  return call(handle_);
}

void ManagedCommunicator::Release(bool clean) {
  if (clean && !cancel_) {
    Post(Released{});
  } else {
    Post(Cancelled{});
  }
}

void ManagedCommunicator::Dispose() { Post(Disposed{}); }

ManagedCommunicator::Reusability ManagedCommunicator::WaitUntilStopped() {
  MutexLock lock(mutex_);
  while (!HasStopped(watchdog_.phase)) changed_.Wait(lock);
  if (watchdog_.phase != Phase::kParked) return Reusability::kNone;
  return watchdog_.revoked ? Reusability::kShrinkOnly : Reusability::kShrinkOrGrow;
}

Status ManagedCommunicator::Failure(MutexLock& lock) {
  if (!watchdog_.failure) return Ok();
  while (!HasStopped(watchdog_.phase)) changed_.Wait(lock);
  return *watchdog_.failure;
}

void ManagedCommunicator::Watch() {
  MutexLock lock(mutex_);
  while (watchdog_.phase != Phase::kGone && watchdog_.phase != Phase::kExiting) {
    if (watchdog_.phase == Phase::kParked) {
      changed_.Wait(lock);
    } else if (!begun_) {
      (void)changed_.WaitUntil(lock, std::min(watchdog_.deadline, Now() + kCalmPoll));
      if (cancel_) Apply(Cancelled{});
    } else {
      const bool busy = watchdog_.phase != Phase::kRunning || watchdog_.waits > 0;
      (void)changed_.WaitUntil(lock, std::min(watchdog_.deadline, Now() + (busy ? kBusyPoll : kCalmPoll)));
      if (cancel_) Apply(Cancelled{});
      Poll();
    }
    if (Now() >= watchdog_.deadline) Apply(Tick{});
  }
  changed_.NotifyAll();
}

void ManagedCommunicator::Poll() {
  const Phase phase = watchdog_.phase;
  if (watchdog_.call_in_flight ||
      (phase != Phase::kForming && phase != Phase::kRunning && phase != Phase::kRevoking))
    return;
  mutex_.Unlock();
  int result = kInProgress;
  if (calls_.TryLock()) {  // otherwise another thread is inside NCCL
    if (!freed_) result = PollLibrary();
    calls_.Unlock();
  }
  mutex_.Lock();
  if (watchdog_.phase != phase || watchdog_.call_in_flight || result == kInProgress) return;
  if (result != kSuccess) {
    Apply(Failed{result, LastError(result)});
  } else if (phase == Phase::kForming) {
    Apply(Formed{});
  } else if (phase == Phase::kRevoking) {
    Apply(Stopped{});
  }
}

// A communicator that forms from a larger one reports its errors there, and has no handle until NCCL is done
// with the parent.
int ManagedCommunicator::PollLibrary() {
  const auto ask = [this](Handle handle) {
    int result = kSuccess;
    const int asked = api_.async_error(handle, &result);
    return asked == kSuccess ? result : asked;
  };
  if (parent_ != nullptr)
    if (const int result = ask(parent_->handle_); result != kSuccess) return result;
  const Handle handle = LoadHandle();
  return handle == nullptr ? static_cast<int>(kInProgress) : ask(handle);
}

// If the call that creates a handle does not set it, a thread of NCCL does so later.
Handle ManagedCommunicator::LoadHandle() {
  return std::atomic_ref<Handle>(handle_).load(std::memory_order_acquire);
}

void ManagedCommunicator::Post(const Event& event) {
  MutexLock lock(mutex_);
  Apply(event);
}

void ManagedCommunicator::Apply(const Event& event) {
  const std::vector<Action> actions = Decide(&watchdog_, event, Now());
  for (const Action action : actions) {
    if (action == Action::kRevoke || action == Action::kAbort) StartCall(action);
    if (action == Action::kExit) {
      const std::string why = ExitReason(watchdog_);
      mutex_.Unlock();
      options_.exit_process(why);
      mutex_.Lock();
    }
  }
  changed_.NotifyAll();
}

void ManagedCommunicator::StartCall(Action action) {
  // The previous call has returned: that is what made this one necessary.
  std::thread before = std::move(call_);
  call_ = std::thread([this, action, before = std::move(before)]() mutable {
    if (before.joinable()) before.join();
    bool ok = true;
    {
      const MutexLock calls(calls_);
      ok = action == Action::kAbort ? AbortHandle() : Succeeded(api_.revoke(handle_, 0));
    }
    Post(CallReturned{ok});
  });
}

// Returns false when some of its work may still run.
bool ManagedCommunicator::AbortHandle() {
  if (std::exchange(freed_, true)) return true;
  const bool ended = AbortForming();
  const Handle handle = LoadHandle();
  return (handle == nullptr || Succeeded(api_.abort(handle))) && ended;
}

// A communicator that forms from a parent waits for other ranks over the parent's connections. A growing one
// has its handle at once, but aborting that handle does not end this wait. A shrinking one has no handle
// before it is formed or has failed: until then only an abort of the parent ends the wait, and afterwards the
// handle is set and must be freed here. The parent is not needed any more in either case.
bool ManagedCommunicator::AbortForming() {
  if (parent_ == nullptr) return true;
  const MutexLock parent_calls(parent_->calls_);
  if (parent_->freed_) return true;
  if (grows_) {
    if (api_.revoke != nullptr) (void)api_.revoke(parent_->handle_, 0);
    return true;
  }
  if (LoadHandle() != nullptr) return true;
  parent_->freed_ = true;
  return Succeeded(api_.abort(parent_->handle_));
}

std::string ManagedCommunicator::LastError(int result) const {
  // The text is that of the newest failure in the process: ncclGetLastError ignores its argument.
  const char* const last = api_.last_error(nullptr);
  const char* const name = api_.error_string(result);
  const std::string kind = name == nullptr ? fmt::format("error {}", result) : name;
  return last == nullptr || *last == '\0' ? kind : fmt::format("{} ({})", kind, last);
}

}  // namespace ringmaster::fabric::nccl
