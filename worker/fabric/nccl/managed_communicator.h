// SPDX-License-Identifier: Apache-2.0

// One NCCL communicator with its watchdog: the shell that executes the decisions of watchdog.h. No call into
// NCCL can hang the caller: the communicator is non-blocking, and calls that may hang all the same (revoke,
// abort) run on a separate thread while another thread watches the deadline.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "worker/fabric/nccl/api.h"
#include "worker/fabric/nccl/watchdog.h"

namespace ringmaster::fabric::nccl {

// Returns whether the recorded point in a stream has been reached.
using EventQuery = std::function<Result<bool>()>;
// Records the point after all work that the stream has been given so far, such as a CUDA event.
using RecordEvent = std::function<EventQuery(Stream)>;

struct ManagedOptions {
  Limits limits;
  // Ends the process; called with the reason when NCCL hangs. May return in tests only.
  std::function<void(const std::string& why)> exit_process;
  RecordEvent record_event;
};

// Not thread-safe; only *cancel may be set by any thread.
class ManagedCommunicator {
 public:
  // What the next generation can make of a communicator that has stopped.
  enum class Reusability : uint8_t {
    kNone,
    kShrinkOnly,    // its operations were revoked: it can become a smaller one
    kShrinkOrGrow,  // it can become a smaller or a larger one
  };

  // Once *cancel is true, all current and future operations end with kCancelled soon. REQUIRES: all three
  // arguments outlive the communicator.
  ManagedCommunicator(const Api* api, const ManagedOptions* options, const std::atomic<bool>* cancel);
  // Frees the communicator within the limits, or ends the process.
  ~ManagedCommunicator();
  ManagedCommunicator(const ManagedCommunicator&) = delete;
  ManagedCommunicator& operator=(const ManagedCommunicator&) = delete;

  // Connects the ranks. `begin` starts that. REQUIRES: `begin` does not block.
  Status Form(const std::function<int(Handle*)>& begin);
  // Form a communicator from `parent`, which is parked, and unusable afterwards, even after a failure. Shrink
  // leaves out the `excluded` ranks of the parent. Grow adds new members, which call Form; rank 0 passes the
  // `id` it got from the parent, the other members of the parent pass nullptr.
  Status Shrink(ManagedCommunicator* parent, std::vector<int> excluded, Configuration* configuration);
  Status Grow(ManagedCommunicator* parent, int world, const UniqueId* id, Configuration* configuration);
  // Gets the id with which new members join `parent`; called before Grow. Returns NCCL's result. REQUIRES:
  // Grow is not called after a failure.
  int GetGrowId(ManagedCommunicator* parent, UniqueId* id);

  // Makes a call that enqueues work on the GPU. Returns before that work is done.
  Status Enqueue(const std::function<int(Handle)>& call);
  // Waits until the work of the stream is done, or was ended because of a failure.
  Status Wait(Stream stream);
  // Makes a call that enqueues no work, while the communicator is usable. Returns NCCL's result; a failure
  // has no further effect.
  int Call(const std::function<int(Handle)>& call);

  // The owner makes no more calls. `clean`: no work of this communicator is in flight on the GPU.
  void Release(bool clean);
  void Dispose();

  // Waits until none of its work runs on the GPU any more.
  Reusability WaitUntilStopped();

 private:
  using Begin = std::function<int(Handle parent, Handle* handle)>;
  Status FormFrom(ManagedCommunicator* parent, bool grows, const Begin& begin);
  int BeginFrom(ManagedCommunicator* parent, bool grows, const Begin& begin) RM_REQUIRES(calls_);
  Status WaitUntilFormed(int result);
  Handle LoadHandle();
  bool AbortHandle() RM_REQUIRES(calls_);
  bool AbortForming() RM_REQUIRES(calls_);
  void Watch();
  // Polls NCCL. Releases mutex_ during the call.
  void Poll() RM_REQUIRES(mutex_);
  int PollLibrary() RM_REQUIRES(calls_);
  // Passes the event to the watchdog and executes its actions. Releases mutex_ during exit_process.
  void Apply(const Event& event) RM_REQUIRES(mutex_);
  void Post(const Event& event);  // locks mutex_ and calls Apply
  void StartCall(Action action) RM_REQUIRES(mutex_);
  std::string LastError(int result) const;
  // Returns Ok while the communicator is usable. After a failure it first waits until the GPU no longer uses
  // the caller's memory. `lock` holds mutex_.
  Status Failure(MutexLock& lock) RM_REQUIRES(mutex_);

  const Api& api_;
  const ManagedOptions& options_;
  const std::atomic<bool>& cancel_;

  // Held during calls into NCCL. Lock order: calls_, calls_ of the parent, mutex_.
  Mutex calls_ RM_ACQUIRED_BEFORE(mutex_);
  Handle handle_ = nullptr;                   // a thread of NCCL may set it: see LoadHandle
  bool freed_ RM_GUARDED_BY(calls_) = false;  // aborted, maybe by a successor
  ManagedCommunicator* parent_ RM_GUARDED_BY(calls_) = nullptr;  // while it forms from the parent
  bool grows_ RM_GUARDED_BY(calls_) = false;

  Mutex mutex_;
  CondVar changed_;
  Watchdog watchdog_ RM_GUARDED_BY(mutex_);
  bool begun_ RM_GUARDED_BY(mutex_) = false;
  std::thread call_ RM_GUARDED_BY(mutex_);  // runs revoke or abort
  std::thread watcher_;                     // last: it uses all other members
};

}  // namespace ringmaster::fabric::nccl
