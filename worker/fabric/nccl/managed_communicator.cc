// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/managed_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"

namespace ringmaster::fabric::nccl {
namespace {

constexpr Duration kBusyPoll = milliseconds(1);   // somebody waits for the result
constexpr Duration kCalmPoll = milliseconds(20);  // so soon an error is noticed
constexpr Duration kSpin = std::chrono::microseconds(50);
constexpr Duration kNap = std::chrono::microseconds(20);

// Waits a little: most of what is waited for comes at once.
class Backoff {
 public:
  void Pause() {
    if (Now() - begin_ < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
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
    const std::lock_guard calls(calls_);
    if (!freed_) result = begin(&handle_);
  }
  std::unique_lock lock(mutex_);
  begun_ = true;
  if (!Succeeded(result)) Apply(lock, Failed{result, LastError(result)});
  changed_.notify_all();
  changed_.wait(lock, [&] { return watchdog_.phase != Phase::kForming; });
  return Failure(lock);
}

Status ManagedCommunicator::Shrink(ManagedCommunicator* parent, std::vector<int> excluded,
                                   Configuration* configuration) {
  return FormFrom(parent, [&](Handle from, Handle* handle) {
    return api_.shrink(from, excluded.data(), static_cast<int>(excluded.size()), handle, configuration, 0);
  });
}

Status ManagedCommunicator::Grow(ManagedCommunicator* parent, int world, const UniqueId* id,
                                 Configuration* configuration) {
  return FormFrom(parent, [&](Handle from, Handle* handle) {
    grows_ = true;
    return api_.grow(from, world, id, -1, handle, configuration);
  });
}

Status ManagedCommunicator::FormFrom(ManagedCommunicator* parent, const Begin& begin) {
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
int ManagedCommunicator::GetGrowId(ManagedCommunicator* parent, UniqueId* id) {
  const std::lock_guard calls(calls_);
  const std::lock_guard parent_calls(parent->calls_);
  return freed_ || parent->freed_ ? static_cast<int>(kInvalidUsage) : api_.grow_id(parent->handle_, id);
}

Status ManagedCommunicator::Enqueue(const std::function<int(Handle)>& call) {
  if (cancel_) Post(Cancelled{});
  std::unique_lock calls(calls_);
  {
    std::unique_lock lock(mutex_);
    if (watchdog_.failure) return *watchdog_.failure;
  }
  int result = call(handle_);
  if (result == kInProgress) {
    calls.unlock();
    Post(WaitStarted{});
    Backoff backoff;
    while (result == kInProgress) {
      backoff.Pause();
      calls.lock();
      {
        std::unique_lock lock(mutex_);
        if (watchdog_.failure) break;
      }
      if (const int asked = api_.async_error(handle_, &result); asked != kSuccess) result = asked;
      calls.unlock();
    }
    if (calls.owns_lock()) calls.unlock();
    Post(WaitEnded{});
  } else {
    calls.unlock();
  }
  std::unique_lock lock(mutex_);
  if (!Succeeded(result)) Apply(lock, Failed{result, LastError(result)});
  return Failure(lock);
}

Status ManagedCommunicator::Wait(Stream stream) {
  Post(WaitStarted{});
  const EventQuery reached = options_.record_event(stream);
  Backoff backoff;
  while (true) {
    const Result<bool> done = reached();
    std::unique_lock lock(mutex_);
    if (cancel_) Apply(lock, Cancelled{});
    if (!done.ok()) Apply(lock, Failed{kUnhandledCudaError, done.error().message});
    if (watchdog_.failure) return Failure(lock);
    if (done.ok() && *done) {
      Apply(lock, WaitEnded{});
      return Failure(lock);
    }
    lock.unlock();
    backoff.Pause();
  }
}

int ManagedCommunicator::Call(const std::function<int(Handle)>& call) {
  const std::lock_guard calls(calls_);
  {
    std::unique_lock lock(mutex_);
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
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return HasStopped(watchdog_.phase); });
  if (watchdog_.phase != Phase::kParked) return Reusability::kNone;
  return watchdog_.revoked ? Reusability::kShrinkOnly : Reusability::kShrinkOrGrow;
}

// Ok while it runs. After a failure: when the GPU has nothing to do with the caller's memory any more.
Status ManagedCommunicator::Failure(std::unique_lock<std::mutex>& lock) {
  if (!watchdog_.failure) return Ok();
  changed_.wait(lock, [&] { return HasStopped(watchdog_.phase); });
  return *watchdog_.failure;
}

void ManagedCommunicator::Watch() {
  std::unique_lock lock(mutex_);
  while (watchdog_.phase != Phase::kGone && watchdog_.phase != Phase::kExiting) {
    if (watchdog_.phase == Phase::kParked) {
      changed_.wait(lock);
    } else if (!begun_) {
      changed_.wait_until(lock, std::min(watchdog_.deadline, Now() + kCalmPoll));
      if (cancel_) Apply(lock, Cancelled{});
    } else {
      const bool busy = watchdog_.phase != Phase::kRunning || watchdog_.waits > 0;
      changed_.wait_until(lock, std::min(watchdog_.deadline, Now() + (busy ? kBusyPoll : kCalmPoll)));
      if (cancel_) Apply(lock, Cancelled{});
      Poll(lock);
    }
    if (Now() >= watchdog_.deadline) Apply(lock, Tick{});
  }
  changed_.notify_all();
}

void ManagedCommunicator::Poll(std::unique_lock<std::mutex>& lock) {
  const Phase phase = watchdog_.phase;
  if (watchdog_.call_in_flight ||
      (phase != Phase::kForming && phase != Phase::kRunning && phase != Phase::kRevoking))
    return;
  lock.unlock();
  int result = kInProgress;
  if (calls_.try_lock()) {  // else somebody is in NCCL just now
    if (!freed_) result = PollLibrary();
    calls_.unlock();
  }
  lock.lock();
  if (watchdog_.phase != phase || watchdog_.call_in_flight || result == kInProgress) return;
  if (result != kSuccess) {
    Apply(lock, Failed{result, LastError(result)});
  } else if (phase == Phase::kForming) {
    Apply(lock, Formed{});
  } else if (phase == Phase::kRevoking) {
    Apply(lock, Stopped{});
  }
}

// With calls_ held. A communicator that is being made of a larger one shows its troubles there, and has no
// handle until that one is done with it.
int ManagedCommunicator::PollLibrary() {
  const auto ask = [this](Handle handle) {
    int result = kSuccess;
    const int asked = api_.async_error(handle, &result);
    return asked == kSuccess ? result : asked;
  };
  if (parent_ != nullptr)
    if (const int result = ask(parent_->handle_); result != kSuccess) return result;
  const Handle made = LoadHandle();
  return made == nullptr ? static_cast<int>(kInProgress) : ask(made);
}

// A handle that is not there at once is put there by a thread of NCCL's.
Handle ManagedCommunicator::LoadHandle() {
  return std::atomic_ref<Handle>(handle_).load(std::memory_order_acquire);
}

void ManagedCommunicator::Post(const Event& event) {
  std::unique_lock lock(mutex_);
  Apply(lock, event);
}

void ManagedCommunicator::Apply(std::unique_lock<std::mutex>& lock, const Event& event) {
  const std::vector<Action> actions = Decide(&watchdog_, event, Now());
  for (const Action action : actions) {
    if (action == Action::kRevoke || action == Action::kAbort) StartCall(action);
    if (action == Action::kExit) {
      const std::string why = ExitReason(watchdog_);
      lock.unlock();
      options_.exit_process(why);
      lock.lock();
    }
  }
  changed_.notify_all();
}

void ManagedCommunicator::StartCall(Action action) {
  // The one before has returned: that is what made this one necessary.
  std::thread before = std::move(call_);
  call_ = std::thread([this, action, before = std::move(before)]() mutable {
    if (before.joinable()) before.join();
    bool ok = true;
    {
      const std::lock_guard calls(calls_);
      ok = action == Action::kAbort ? Free() : Succeeded(api_.revoke(handle_, 0));
    }
    Post(CallReturned{ok});
  });
}

// With calls_ held. False: something of it may still run.
bool ManagedCommunicator::Free() {
  if (std::exchange(freed_, true)) return true;
  const bool ended = AbortForming();
  const Handle made = LoadHandle();
  return (made == nullptr || Succeeded(api_.abort(made))) && ended;
}

// With calls_ held. Who makes one from the parent waits for others by the parent's own connections. A larger
// one has its handle at once, but its abort does not reach so far. A smaller one has none before it is made,
// or has failed: until then only the end of the parent ends that, and by that end the handle is there and is
// ours to free. Nobody has a use for the parent any more.
bool ManagedCommunicator::AbortForming() {
  if (parent_ == nullptr) return true;
  const std::lock_guard parent_calls(parent_->calls_);
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
  // The text is of the process's newest failure: ncclGetLastError ignores its argument.
  const char* const last = api_.last_error(nullptr);
  const char* const name = api_.error_string(result);
  const std::string kind = name == nullptr ? fmt::format("error {}", result) : name;
  return last == nullptr || *last == '\0' ? kind : fmt::format("{} ({})", kind, last);
}

}  // namespace ringmaster::fabric::nccl
