// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/watchdog.h"

#include <fmt/format.h>

#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {
namespace {

// Prints deadlines in the unit in which they are set.
std::string InWords(Duration limit) {
  const int64_t ms = ToMs(limit);
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

Error ErrorOf(const Failed& failed) {
  switch (failed.result) {
    case kSystemError:
    case kRemoteError:
      return {Code::kUnavailable, "NCCL: a peer, or the connection to it, is gone: " + failed.text};
    case kInvalidArgument:
    case kInvalidUsage:
      return {Code::kInvalid, "NCCL refuses: " + failed.text};
    case kUnhandledCudaError:
      return {Code::kGone, "NCCL: the GPU failed: " + failed.text};
    default:
      return {Code::kInternal, "NCCL: " + failed.text};
  }
}

class Decider {
 public:
  Decider(Watchdog* watchdog, Time now) : w_(*watchdog), now_(now) {}

  std::vector<Action> Take() { return std::move(actions_); }

  void On(const Formed&) {
    if (w_.phase != Phase::kForming) return;
    w_.phase = Phase::kRunning;
    w_.deadline = kNever;
  }

  void On(const Failed& failed) {
    if (w_.phase == Phase::kForming || w_.phase == Phase::kRunning) {
      Fail(ErrorOf(failed));
      Stop();
    } else if (w_.phase == Phase::kRevoking && !w_.call_in_flight) {
      Abort();  // instead of stopping it reports an error
    }
  }

  void On(const WaitStarted&) {
    if (w_.phase != Phase::kRunning) return;
    if (w_.waits++ == 0) w_.deadline = now_ + w_.limits.operation;
  }

  void On(const WaitEnded&) {
    if (w_.phase != Phase::kRunning || w_.waits == 0) return;
    // The remaining waits have just seen progress.
    w_.deadline = --w_.waits == 0 ? kNever : now_ + w_.limits.operation;
  }

  void On(const Cancelled&) {
    if (w_.phase != Phase::kForming && w_.phase != Phase::kRunning) return;
    Fail({Code::kCancelled, "this generation was given up"});
    Stop();
  }

  void On(const Released&) {
    if (w_.phase == Phase::kRunning && w_.capabilities.shrink) {
      Fail({Code::kCancelled, "the communicator was released"});
      Park();
    } else if (w_.phase == Phase::kForming || w_.phase == Phase::kRunning) {
      Fail({Code::kCancelled, "the communicator was released"});
      w_.idle = true;
      Abort();
    }
  }

  void On(const Disposed&) {
    w_.disposed = true;
    if (w_.phase == Phase::kForming || w_.phase == Phase::kRunning) {
      Fail({Code::kCancelled, "the communicator was disposed of"});
      Abort();
    } else if (w_.phase == Phase::kParked) {
      Abort();
    }
  }

  void On(const CallReturned& returned) {
    if (!w_.call_in_flight) return;
    w_.call_in_flight = false;
    if (w_.phase == Phase::kRevoking && !returned.ok) {
      Abort();
    } else if (w_.phase == Phase::kAborting && returned.ok) {
      w_.phase = Phase::kGone;
      w_.deadline = kNever;
    } else if (w_.phase == Phase::kAborting) {
      Exit();  // its kernels may still run, and nothing else can stop them
    }
  }

  void On(const Stopped&) {
    if (w_.phase == Phase::kRevoking && !w_.call_in_flight) Park();
  }

  void On(const Tick&) {
    if (now_ < w_.deadline) return;
    switch (w_.phase) {
      case Phase::kForming:
        Fail({Code::kDeadlineExceeded,
              fmt::format("NCCL did not connect all ranks within {}: is a port between the pods closed (a "
                          "NetworkPolicy, a mesh's sidecar), or is NCCL_SOCKET_IFNAME wrong?",
                          InWords(w_.limits.forming))});
        Stop();
        break;
      case Phase::kRunning:
        Fail({Code::kDeadlineExceeded,
              fmt::format("no NCCL operation ended within {}", InWords(w_.limits.operation))});
        Stop();
        break;
      case Phase::kRevoking:
      case Phase::kAborting:
        Exit();
        break;
      case Phase::kParked:
      case Phase::kGone:
      case Phase::kExiting:
        break;
    }
  }

 private:
  void Fail(Error error) {
    w_.failure = std::move(error);
    w_.waits = 0;
    actions_.push_back(Action::kFail);
  }

  // Ends the work on the GPU; by a revoke if possible, so that a smaller communicator can follow.
  void Stop() {
    const bool keep = w_.phase == Phase::kRunning && w_.capabilities.revoke && w_.capabilities.shrink;
    if (!keep) return Abort();
    w_.deadline = now_ + w_.limits.stopping;
    w_.phase = Phase::kRevoking;
    w_.revoked = true;
    Call(Action::kRevoke);
  }

  void Park() {
    w_.phase = Phase::kParked;
    w_.deadline = kNever;
    if (w_.disposed) Abort();
  }

  // After a failed revoke the deadline stays the same.
  void Abort() {
    w_.idle = w_.idle || w_.phase == Phase::kForming || w_.phase == Phase::kParked;
    if (w_.phase != Phase::kRevoking) w_.deadline = now_ + (w_.idle ? w_.limits.freeing : w_.limits.stopping);
    w_.phase = Phase::kAborting;
    Call(Action::kAbort);
  }

  void Call(Action action) {
    w_.call_in_flight = true;
    actions_.push_back(action);
  }

  void Exit() {
    w_.phase = Phase::kExiting;
    w_.deadline = kNever;
    actions_.push_back(Action::kExit);
  }

  Watchdog& w_;
  const Time now_;
  std::vector<Action> actions_;
};

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForming:
      return "forming";
    case Phase::kRunning:
      return "running";
    case Phase::kRevoking:
      return "revoking";
    case Phase::kParked:
      return "parked";
    case Phase::kAborting:
      return "aborting";
    case Phase::kGone:
      return "gone";
    case Phase::kExiting:
      return "exiting";
  }
  return "?";
}

Watchdog StartWatchdog(const Limits& limits, const Capabilities& capabilities, Time now) {
  Watchdog watchdog;
  watchdog.limits = limits;
  watchdog.capabilities = capabilities;
  watchdog.deadline = now + limits.forming;
  return watchdog;
}

std::vector<Action> Decide(Watchdog* watchdog, const Event& event, Time now) {
  Decider decider(watchdog, now);
  std::visit([&](const auto& one) { decider.On(one); }, event);
  return decider.Take();
}

std::string ExitReason(const Watchdog& watchdog) {
  return fmt::format("NCCL did not {} within {} after: {}",
                     watchdog.idle ? "free a communicator" : "stop its work on the GPU",
                     InWords(watchdog.idle ? watchdog.limits.freeing : watchdog.limits.stopping),
                     watchdog.failure ? watchdog.failure->message : "it was released");
}

}  // namespace ringmaster::fabric::nccl
