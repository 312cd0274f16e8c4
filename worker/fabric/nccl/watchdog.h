// SPDX-License-Identifier: Apache-2.0

// What to do about an NCCL communicator, and when: a state machine without clock, thread or library. Its
// shell (managed_communicator.h) passes it events and executes the actions that it decides.
//
// Why it is needed: NCCL operations run on the GPU and do not end when a peer is gone. The calls that end
// them (revoke, abort) may hang themselves, and then only the end of the process frees the GPU. A process
// that exits costs a restart of one trainer; one that hangs costs the job.
//
// Invariants
//   W1  Only the first failure is reported, once; nothing is enqueued after it.
//   W2  At most one call into NCCL is in flight.
//   W3  From the first failure or cancellation to the end of the GPU's work takes at most limits.stopping,
//   and
//       freeing a communicator without work on the GPU at most limits.freeing; after that the process exits.
//       kExiting is final.
//   W4  A communicator is parked (kept for a successor) only when all its work has ended and the library can
//       shrink it; in kGone no call is made.
//   W5  Revoke is tried at most once; when it fails, abort follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::fabric::nccl {

struct Limits {
  Duration forming = seconds(60);         // from the first call to a connected communicator
  Duration operation = seconds(60);       // of a wait of the host for work on the GPU
  Duration stopping = milliseconds(500);  // from a failure to the end of the GPU's work
  Duration freeing = seconds(5);          // joining threads and freeing memory, which delays nothing else
};

// What the library supports.
struct Capabilities {
  bool revoke = false;
  bool shrink = false;
};

enum class Phase : uint8_t {
  kForming,   // the library connects the ranks
  kRunning,   // operations may be enqueued
  kRevoking,  // asked to stop its operations, in order to be parked
  kParked,    // no operation runs; may become another communicator, or be disposed of
  kAborting,  // asked to free everything
  kGone,      // freed
  kExiting,   // hangs: the process must end
};
const char* PhaseName(Phase phase);

// ---- events
struct Formed {};  // the library reports that all ranks are connected
struct Failed {    // a call, or a poll of the library, returned an error
  int result = 0;  // nccl::ResultCode
  std::string text;
};
struct WaitStarted {};  // the host waits for work on the GPU...
struct WaitEnded {};    // ...and it is done
struct Cancelled {};    // this generation is given up
struct Released {};     // the owner does not use it any more; no work is in flight on the GPU
struct Disposed {};     // not needed as a parent, either
struct CallReturned {   // the call in flight has returned
  bool ok = false;
};
struct Stopped {};  // polled while revoking: no operation runs any more
struct Tick {};     // time has passed
using Event = std::variant<Formed, Failed, WaitStarted, WaitEnded, Cancelled, Released, Disposed,
                           CallReturned, Stopped, Tick>;

// ---- actions
enum class Action : uint8_t {
  kFail,    // current and future waits get `failure`
  kRevoke,  // call it, on a thread that may hang
  kAbort,   // call it, on a thread that may hang
  kExit,    // end the process at once
};

struct Watchdog {
  Limits limits;
  Capabilities capabilities;
  Phase phase = Phase::kForming;
  std::optional<Error> failure;  // kCancelled, kUnavailable, kDeadlineExceeded, kInvalid, kGone or kInternal
  bool call_in_flight = false;
  bool revoked = false;  // set when the revoke is requested
  bool idle = false;     // when it is freed: it has no work on the GPU
  bool disposed = false;
  int waits = 0;           // in progress
  Time deadline = kNever;  // of the phase, or of the oldest wait
};

Watchdog StartWatchdog(const Limits& limits, const Capabilities& capabilities, Time now);

std::vector<Action> Decide(Watchdog* watchdog, const Event& event, Time now);

// Returns why the process must end, for its log and termination message.
std::string ExitReason(const Watchdog& watchdog);

}  // namespace ringmaster::fabric::nccl
