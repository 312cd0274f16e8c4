// SPDX-License-Identifier: Apache-2.0

// Faults: the fault rates of one simulated run. Each seed draws its own rates, so that some runs have a
// single kind of fault (swarm testing).
#pragma once

#include "base/rng.h"
#include "base/time.h"

namespace ringmaster::sim {

struct Faults {
  Duration until{0};          // since the start; no faults happen later
  Duration watch_lag_max{0};  // of a change on its way to the view; each kind has a separate stream
  Duration request_max{0};    // latency of a request, and again of its reply
  double lost_request = 0;    // per write
  double lost_reply = 0;
  double late_request = 0;      // per write: it arrives seconds later, perhaps after its sender has ended
  double conflict = 0;          // per status write, spurious
  double failed_read = 0;       // per live read
  double controller_crash = 0;  // per command
  double long_absence = 0;      // per crash: no leader for up to a minute
  double deposed = 0;           // per second: another leader starts while this one continues for a while
  double clock = 0;             // per second: the controller's wall clock is set to another time
  double stuck_deletion = 0;    // per graceful deletion: the node is lost
  double pod_crash = 0;         // per pod and second
  double pod_silent = 0;        // per pod and second
  double node_lost = 0;         // per node and second; it comes back later
                                // As often the API server does not hear one that runs on; drawn apart.
  double node_restart = 0;      // per node and second; it is back before its loss is reported
  double collected = 0;         // per ended pod and second: the garbage collector or a user deletes it
  double bad_image = 0;         // per start of a pod: the image cannot be pulled for a while
  double refusal = 0;           // per creation: an admission webhook refuses it
  double quota = 0;             // per second: a quota appears, changes or disappears
  double half_prepared = 0;     // per PrepareGang: some objects are created, then an error follows
  double by_hand = 0;           // per second: a user deletes a supporting object, or takes a pod's name
  double user_edit = 0;         // per second
  double scheduler_away = 0;    // per second: the scheduler ends, and starts again later; drawn apart
  double eviction = 0;          // per second and admitted Workload; drawn by the runs that have Kueue

  static Faults None() { return {}; }

  static Faults Draw(SplitMix64& rng) {
    const auto rate = [&](double most) { return rng.Chance(0.5) ? 0 : most * rng.Uniform(); };
    const auto rare = [&](double most) { return rng.Chance(0.8) ? 0 : most * rng.Uniform(); };
    Faults f;
    f.until = milliseconds(20'000 + static_cast<int64_t>(rng.Below(60'000)));
    f.watch_lag_max = milliseconds(rng.Chance(0.3) ? 0 : static_cast<int64_t>(rng.Below(4000)));
    f.request_max = milliseconds(1 + static_cast<int64_t>(rng.Below(400)));
    f.lost_request = rate(0.3);
    f.lost_reply = rate(0.3);
    f.late_request = rare(0.2);
    f.conflict = rate(0.3);
    f.failed_read = rate(0.5);
    f.controller_crash = rate(0.08);
    f.deposed = rare(0.1);
    f.clock = rare(0.05);
    f.stuck_deletion = rate(0.5);
    f.pod_crash = rate(0.15);
    f.pod_silent = rate(0.05);
    f.node_lost = rate(0.03);
    f.bad_image = rare(0.3);
    f.refusal = rare(0.3);
    f.quota = rare(0.1);
    f.half_prepared = rare(0.4);
    f.by_hand = rare(0.2);
    f.user_edit = rate(0.15);
    f.node_restart = rate(0.03);
    f.collected = rate(0.5);
    f.long_absence = rate(0.5);
    return f;
  }
};

}  // namespace ringmaster::sim
