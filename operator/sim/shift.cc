// SPDX-License-Identifier: Apache-2.0

#include "operator/sim/shift.h"

namespace ringmaster::sim {
namespace {

void Shift(Time& at, Duration by) {
  if (at != Time{}) at += by;
}
void Shift(std::optional<Time>& at, Duration by) {
  if (at) Shift(*at, by);
}

}  // namespace

core::Status Shifted(core::Status status, Duration by) {
  if (by == Duration{0}) return status;
  core::Ledger& l = status.ledger;
  for (Time* at : {&l.attempt_since, &l.accounted}) Shift(*at, by);
  for (std::optional<Time>* at :
       {&l.not_before, &l.ready_since, &l.stop_since, &l.active_since, &l.start_time, &l.completion_time})
    Shift(*at, by);
  for (core::ExcludedNode& node : l.excluded) Shift(node.until, by);
  for (core::Suspect& suspect : l.suspects) Shift(suspect.since, by);
  for (core::Absence& absence : l.absent) Shift(absence.since, by);
  if (l.last_failure) Shift(l.last_failure->at, by);
  for (core::Condition& condition : status.display.conditions) Shift(condition.since, by);
  Shift(status.display.progress_at, by);
  return status;
}

}  // namespace ringmaster::sim
