// SPDX-License-Identifier: Apache-2.0

// What to do about a communicator of NCCL, and when: a state machine without clock, thread or library. Its
// shell (managed_communicator.h) tells it what happens and carries out what it decides.
//
// Why it is needed: operations of NCCL run on the GPU and do not end by themselves when a peer is gone; what
// ends them (revoke, abort) is a call into NCCL that may itself hang, and then only the end of the process
// frees the GPU. A process that leaves costs a restart of one trainer; one that hangs costs the job.
//
// Invariants
//   W1  A failure is told once, and it is the first one; nothing is enqueued after it.
//   W2  At most one call into NCCL is under way.
//   W3  From the first failure or order to the end of the GPU's work never takes longer than
//       limits.stopping, and to free one that has no work there never longer than limits.freeing: after that
//       the process is told to leave. kExiting is final.
//   W4  A communicator is parked (kept for a successor) only when all its work is over and the library can
//       shrink it; from kGone nothing is ever called.
//   W5  Revoke is tried at most once; when it does not succeed, abort is.
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
  Duration forming = seconds(60);    // from the first call to a communicator that works
  Duration operation = seconds(60);  // that the host waits for work on the GPU
  Duration stopping = milliseconds(500);
  Duration freeing = seconds(5);  // threads are joined and memory given back, which stops nobody's work
};

// Of the library.
struct Capabilities {
  bool revoke = false;
  bool shrink = false;
};

enum class Phase : uint8_t {
  kForming,   // the library connects the ranks
  kRunning,   // operations may be enqueued
  kRevoking,  // asked to stop its operations, to be parked
  kParked,    // no operation runs; may become another one, or be disposed of
  kAborting,  // asked to free everything
  kGone,      // freed
  kExiting,   // hangs: the process must end
};
const char* PhaseName(Phase phase);

// ---- what happened
struct Formed {};    // the library says that all ranks are connected
struct Failed {      // a call, or the library on being polled, answered with an error
  int result = 0;    // nccl::ResultCode
  std::string text;  // what the library says
};
struct WaitStarted {};  // the host waits for work on the GPU...
struct WaitEnded {};    // ...and it is done
struct Cancelled {};    // this generation is given up
struct Released {};     // the owner does not use it any more; no work is under way on the GPU
struct Disposed {};     // not needed as a parent either
struct CallReturned {   // of the one call under way
  bool ok = false;
};
struct Stopped {};  // polled while revoking: no operation runs any more
struct Tick {};     // time has passed
using Event = std::variant<Formed, Failed, WaitStarted, WaitEnded, Cancelled, Released, Disposed,
                           CallReturned, Stopped, Tick>;

// ---- what to do
enum class Action : uint8_t {
  kFail,    // who waits or comes gets `failure`
  kRevoke,  // call it, on a thread that may hang
  kAbort,   // the same
  kExit,    // end the process at once
};

struct Watchdog {
  Limits limits;
  Capabilities capabilities;
  Phase phase = Phase::kForming;
  std::optional<Error> failure;  // kCancelled, kUnavailable, kDeadlineExceeded, kInternal
  bool call_in_flight = false;   // a call is under way
  bool revoked = false;          // from when that is asked for
  bool idle = false;             // when it is freed: nothing of it is on the GPU
  bool disposed = false;
  int waits = 0;
  Time deadline = kNever;  // the deadline of the phase, or of the oldest wait
};

Watchdog StartWatchdog(const Limits& limits, const Capabilities& capabilities, Time now);

std::vector<Action> Decide(Watchdog* watchdog, const Event& event, Time now);

// Why the process has to leave, for its log and termination message.
std::string ExitReason(const Watchdog& watchdog);

}  // namespace ringmaster::fabric::nccl
