// SPDX-License-Identifier: Apache-2.0

// How a job makes room for one of higher priority (core/preemption.h decides which job, and how much), and
// gets it back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_steps.h"

namespace ringmaster::core {

std::string PreemptorText(const Preemption& preemption) {
  return fmt::format("{} (priority {}) needs room", preemption.by, preemption.by_priority);
}

bool MayPreempt(const Observed& o) {
  return o.job.preempt && !Draining(o) && std::none_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
           return InGang(o.job, o.status.ledger, pod) && (pod.deleting() || pod.phase == PodPhase::kFailed);
         });
}

std::optional<Decision> CheckPreemption(const Observed& o, Time now) {
  const Ledger& ledger = o.status.ledger;
  // A job that stops makes room in any case.
  if (o.job.suspend || ledger.stop_since || ledger.suspended || ledger.attempt == 0) return std::nullopt;
  if (o.preempt && o.preempt->workers < o.job.Target()) {
    const Preemption& asked = *o.preempt;
    Ledger next = ledger;
    next.preemption = asked;
    // The preemptor cannot report this itself: it may have room before its next decision.
    if (asked.workers == 0) {
      next.stop_since = now;
      return WriteLedger(
          o, std::move(next), now, "preempted",
          {{false, "Preempted",
            fmt::format(
                "{}: the workers exit, after a checkpoint if the job writes any; the job resumes when "
                "there is room",
                PreemptorText(asked))},
           {false, "Preempting", "makes room: all workers stop", asked.by}});
    }
    const std::string change = fmt::format("from {} to {} workers", o.job.Target(), asked.workers);
    return WriteLedger(o, std::move(next), now, "preempted to fewer workers",
                       {{false, "Preempted", fmt::format("{}: {}", PreemptorText(asked), change)},
                        {false, "Preempting", "makes room: " + change, asked.by}});
  }
  if (ledger.preemption && ledger.preemption->workers > 0 && !o.preemptor_waits) {
    Ledger next = ledger;
    next.preemption.reset();
    return WriteLedger(
        o, std::move(next), now, "no longer preempted",
        {{false, "PreemptionEnded",
          fmt::format("{} does not wait for room any more: the job grows again as there is room",
                      ledger.preemption->by)}});
  }
  return std::nullopt;
}

}  // namespace ringmaster::core
