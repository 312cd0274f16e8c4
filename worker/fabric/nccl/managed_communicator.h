// SPDX-License-Identifier: Apache-2.0

// One communicator of NCCL with its watchdog: the shell around watchdog.h. Calls are made so that none of
// them can hang the caller: the communicator is non-blocking, and what may hang all the same (revoke, abort)
// is called on a thread of its own, while another one looks at the clock.
//
// Thread rule: one thread at a time; the flag that gives it up is set by any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "worker/fabric/nccl/api.h"
#include "worker/fabric/nccl/watchdog.h"

namespace ringmaster::fabric::nccl {

// Says whether a point in a stream has been reached.
using EventQuery = std::function<Result<bool>()>;
using RecordEvent = std::function<EventQuery(Stream)>;

struct ManagedOptions {
  Limits limits;
  // Ends the process; called when NCCL hangs, with a sentence that says why. It may return in tests only.
  std::function<void(const std::string& why)> exit_process;
  // Of the point behind all that the stream was given so far; an event of CUDA.
  RecordEvent record_event;
};

class ManagedCommunicator {
 public:
  // What is left of it when its work is over.
  enum class Reusability : uint8_t {
    kNone,
    kShrinkOnly,    // its operations were ended: a smaller one can be made of it
    kShrinkOrGrow,  // or a larger one
  };

  // When *cancel becomes true, everything under way or to come ends with kCancelled, soon. All three must
  // outlive it.
  ManagedCommunicator(const Api* api, const ManagedOptions* options, const std::atomic<bool>* cancel);
  // Frees the communicator, within the limits or else the process leaves.
  ~ManagedCommunicator();
  ManagedCommunicator(const ManagedCommunicator&) = delete;
  ManagedCommunicator& operator=(const ManagedCommunicator&) = delete;

  // Connects the ranks. `begin` starts that and must not block.
  Status Form(const std::function<int(Handle*)>& begin);
  // The same as a successor of `parent`, which is parked and of no use to anybody else afterwards, also when
  // this fails. Smaller: without these ranks of it. Larger: all who have the parent, and newcomers, which
  // call Form; rank 0 has got `id` from the parent, the others have none.
  Status Shrink(ManagedCommunicator* parent, std::vector<int> excluded, Configuration* configuration);
  Status Grow(ManagedCommunicator* parent, int world, const UniqueId* id, Configuration* configuration);
  // For newcomers to `parent`; before Grow. The library's result: without an id, Grow must not be called.
  int GetGrowId(ManagedCommunicator* parent, UniqueId* id);

  // Makes a call that gives work to the GPU. It returns before that is done.
  Status Enqueue(const std::function<int(Handle)>& call);
  // Until the stream's work is done, or has been ended because of a failure.
  Status Wait(Stream stream);
  // A call without work for the GPU, while it runs; errors are the caller's own affair.
  int Call(const std::function<int(Handle)>& call);

  // No more calls by the owner. `clean`: no work of this communicator is under way on the GPU.
  void Release(bool clean);
  void Dispose();

  // Waits until nothing of it runs on the GPU any more.
  Reusability WaitUntilStopped();

 private:
  using Begin = std::function<int(Handle parent, Handle* handle)>;
  Status FormFrom(ManagedCommunicator* parent, const Begin& begin);
  Handle LoadHandle();
  bool Free();
  bool AbortForming();
  void Watch();
  void Poll(std::unique_lock<std::mutex>& lock);
  int PollLibrary();
  // With the lock held, which is let go and taken again around `leave`.
  void Apply(std::unique_lock<std::mutex>& lock, const Event& event);
  void StartCall(Action action);
  void Post(const Event& event);
  std::string LastError(int result) const;
  Status Failure(std::unique_lock<std::mutex>& lock);

  const Api& api_;
  const ManagedOptions& options_;
  const std::atomic<bool>& cancel_;

  std::mutex calls_;  // held while in NCCL; taken before the parent's, and that before mutex_
  Handle handle_ = nullptr;
  bool freed_ = false;                     // abort was called, maybe by a successor
  ManagedCommunicator* parent_ = nullptr;  // while being made of it
  bool grows_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  Watchdog watchdog_;
  bool begun_ = false;
  std::thread call_;     // revoke or abort
  std::thread watcher_;  // last: it uses all the others
};

}  // namespace ringmaster::fabric::nccl
