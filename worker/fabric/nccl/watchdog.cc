// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/watchdog.h"

#include <fmt/format.h>

#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {
namespace {

// Deadlines are told in the unit in which they were chosen.
std::string InWords(Duration limit) {
  const int64_t ms = ToMs(limit);
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

Error ErrorOf(const Failed& failed) {
  switch (failed.answer) {
    case kSystemError:
    case kRemoteError:
      return {Code::kUnavailable, "NCCL: a peer or the way to it is gone: " + failed.text};
    case kInvalidArgument:
    case kInvalidUsage:
      return {Code::kInvalid, "NCCL refuses: " + failed.text};
    case kUnhandledCudaError:
      return {Code::kGone, "NCCL: the GPU failed: " + failed.text};
    default:
      return {Code::kInternal, "NCCL: " + failed.text};
  }
}

class Deciding {
 public:
  Deciding(Watchdog* watchdog, Time now) : w_(*watchdog), now_(now) {}

  std::vector<Act> Take() { return std::move(acts_); }

  void On(const Formed&) {
    if (w_.phase != Phase::kForming) return;
    w_.phase = Phase::kRunning;
    w_.due = kNever;
  }

  void On(const Failed& failed) {
    if (w_.phase == Phase::kForming || w_.phase == Phase::kRunning) {
      Fail(ErrorOf(failed));
      Stop();
    } else if (w_.phase == Phase::kRevoking && !w_.calling) {
      Abort();  // it was told to stop and answers with an error instead of falling quiet
    }
  }

  void On(const WaitBegan&) {
    if (w_.phase != Phase::kRunning) return;
    if (w_.waits++ == 0) w_.due = now_ + w_.limits.operation;
  }

  void On(const WaitEnded&) {
    if (w_.phase != Phase::kRunning || w_.waits == 0) return;
    // Whoever still waits has just seen progress.
    w_.due = --w_.waits == 0 ? kNever : now_ + w_.limits.operation;
  }

  void On(const Ordered&) {
    if (w_.phase != Phase::kForming && w_.phase != Phase::kRunning) return;
    Fail({Code::kCancelled, "this generation was given up"});
    Stop();
  }

  void On(const Released&) {
    if (w_.phase == Phase::kRunning && w_.abilities.shrink) {
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
    if (!w_.calling) return;
    w_.calling = false;
    if (w_.phase == Phase::kRevoking && !returned.ok) {
      Abort();
    } else if (w_.phase == Phase::kAborting && returned.ok) {
      w_.phase = Phase::kGone;
      w_.due = kNever;
    } else if (w_.phase == Phase::kAborting) {
      Leave();  // its kernels may run on, and nothing else can stop them
    }
  }

  void On(const Quiet&) {
    if (w_.phase == Phase::kRevoking && !w_.calling) Park();
  }

  void On(const Tick&) {
    if (now_ < w_.due) return;
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
              fmt::format("no operation of NCCL ended within {}", InWords(w_.limits.operation))});
        Stop();
        break;
      case Phase::kRevoking:
      case Phase::kAborting:
        Leave();
        break;
      case Phase::kParked:
      case Phase::kGone:
      case Phase::kLeaving:
        break;
    }
  }

 private:
  void Fail(Error error) {
    w_.failure = std::move(error);
    w_.waits = 0;
    acts_.push_back(Act::kFail);
  }

  // Ends what runs on the GPU, if possible such that a smaller communicator can be made of this one.
  void Stop() {
    const bool keep = w_.phase == Phase::kRunning && w_.abilities.revoke && w_.abilities.shrink;
    if (!keep) return Abort();
    w_.due = now_ + w_.limits.quiet;
    w_.phase = Phase::kRevoking;
    w_.revoked = true;
    Call(Act::kRevoke);
  }

  void Park() {
    w_.phase = Phase::kParked;
    w_.due = kNever;
    if (w_.disposed) Abort();
  }

  // After a revoke that did not work, within the same deadline.
  void Abort() {
    w_.idle = w_.idle || w_.phase == Phase::kForming || w_.phase == Phase::kParked;
    if (w_.phase != Phase::kRevoking) w_.due = now_ + (w_.idle ? w_.limits.freeing : w_.limits.quiet);
    w_.phase = Phase::kAborting;
    Call(Act::kAbort);
  }

  void Call(Act act) {
    w_.calling = true;
    acts_.push_back(act);
  }

  void Leave() {
    w_.phase = Phase::kLeaving;
    w_.due = kNever;
    acts_.push_back(Act::kLeave);
  }

  Watchdog& w_;
  const Time now_;
  std::vector<Act> acts_;
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
    case Phase::kLeaving:
      return "leaving";
  }
  return "?";
}

Watchdog StartWatchdog(const Limits& limits, const Abilities& abilities, Time now) {
  Watchdog watchdog;
  watchdog.limits = limits;
  watchdog.abilities = abilities;
  watchdog.due = now + limits.forming;
  return watchdog;
}

std::vector<Act> Decide(Watchdog* watchdog, const Event& event, Time now) {
  Deciding deciding(watchdog, now);
  std::visit([&](const auto& one) { deciding.On(one); }, event);
  return deciding.Take();
}

std::string LeaveReason(const Watchdog& watchdog) {
  return fmt::format("NCCL did not {} within {} after: {}",
                     watchdog.idle ? "free a communicator" : "stop its work on the GPU",
                     InWords(watchdog.idle ? watchdog.limits.freeing : watchdog.limits.quiet),
                     watchdog.failure ? watchdog.failure->message : "it was released");
}

}  // namespace ringmaster::fabric::nccl
