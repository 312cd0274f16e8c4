// SPDX-License-Identifier: Apache-2.0

// Gangs that a scheduler has placed in part. One that knows gangs leaves no such gang, and in Kubernetes
// nothing else shows whether the feature is enabled in it.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_steps.h"

namespace ringmaster::core {
namespace {

// The scheduler binds the pods of a gang one after the other.
constexpr Duration kBindingGap = seconds(3);

bool HasNodes(const Observed& o, const Placement& p) {
  return o.provider == GangProvider::kScheduler && !o.status.ledger.ready_since &&
         p.bound > static_cast<int32_t>(o.status.ledger.succeeded.size());
}

}  // namespace

bool IsTorn(const Observed& o, Time now) {
  const Placement p = PlacementOf(o, o.status.ledger);
  if (!HasNodes(o, p) || p.bound >= p.needed) return false;
  return std::none_of(o.pods.begin(), o.pods.end(), [&](const Pod& pod) {
    return InGang(o.job, o.status.ledger, pod) && pod.bound() && now < pod.placed + kBindingGap;
  });
}

std::string TornText(const Observed& o, const Placement& p, Time now) {
  if (!HasNodes(o, p)) return {};
  const std::string count = fmt::format("; only {}/{} pods had a node: ", p.bound, p.wanted);
  if (o.native_on_trial && IsTorn(o, now))
    return count +
           "gangs are not enabled in the scheduler, so auto chooses another provider from now on; to use "
           "native, enable them and restart the operator";
  return count + "enable gangs in the scheduler, or set scheduling.gang to gate";
}

}  // namespace ringmaster::core
