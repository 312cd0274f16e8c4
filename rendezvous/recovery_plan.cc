// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/recovery_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {
namespace {

struct Vote {
  std::vector<size_t> agree;     // the largest group, if it is the only one of its size
  std::vector<size_t> disagree;  // all others
};

Vote Compare(const std::vector<MemberStatus>& statuses, const std::vector<size_t>& at_step) {
  std::map<std::pair<uint64_t, uint64_t>, std::vector<size_t>> groups;
  for (const size_t i : at_step) groups[{statuses[i].params_hash, statuses[i].optimizer_hash}].push_back(i);
  size_t largest = 0;
  for (const auto& [hash, group] : groups) largest = std::max(largest, group.size());
  const auto is_largest = [&](const auto& entry) { return entry.second.size() == largest; };
  const bool clear = std::count_if(groups.begin(), groups.end(), is_largest) == 1;
  Vote vote;
  for (const auto& [hash, group] : groups) {
    std::vector<size_t>& to = clear && group.size() == largest ? vote.agree : vote.disagree;
    to.insert(to.end(), group.begin(), group.end());
  }
  std::sort(vote.disagree.begin(), vote.disagree.end());
  return vote;
}

}  // namespace

RecoveryPlan PlanRecovery(const std::vector<MemberStatus>& statuses, int64_t checkpoint_step) {
  RecoveryPlan plan;
  int64_t smax = -1;
  for (const MemberStatus& status : statuses) {
    if (status.has_state) smax = std::max(smax, status.step);
  }
  if (smax < 0) return plan;
  const bool outranked = smax < checkpoint_step;

  std::vector<size_t> leaders;   // at smax
  std::vector<size_t> laggards;  // one behind
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!statuses[i].has_state) continue;
    if (outranked || statuses[i].step < smax - 1) {
      plan.stale.push_back(i);
    } else {
      (statuses[i].step == smax ? leaders : laggards).push_back(i);
    }
  }
  if (outranked) return plan;

  const Vote ahead = Compare(statuses, leaders);
  const Vote behind = Compare(statuses, laggards);
  if (!laggards.empty() && behind.agree.empty()) {
    plan.failure = "the states of step " + std::to_string(smax - 1) + " differ and no version has a majority";
    return plan;
  }
  if (laggards.empty() && ahead.agree.empty()) {
    plan.failure = "the states of step " + std::to_string(smax) + " differ and no version has a majority";
    return plan;
  }
  plan.corrupt = ahead.disagree;
  plan.corrupt.insert(plan.corrupt.end(), behind.disagree.begin(), behind.disagree.end());
  std::sort(plan.corrupt.begin(), plan.corrupt.end());

  const bool all_can_undo = std::all_of(ahead.agree.begin(), ahead.agree.end(),
                                        [&](size_t i) { return statuses[i].can_roll_back; });
  plan.sources = ahead.agree;
  if (laggards.empty() || (!all_can_undo && !ahead.agree.empty())) {
    plan.start_step = smax;
    plan.stale.insert(plan.stale.end(), behind.agree.begin(), behind.agree.end());
    std::sort(plan.stale.begin(), plan.stale.end());
  } else {
    plan.start_step = smax - 1;
    plan.sources.insert(plan.sources.end(), behind.agree.begin(), behind.agree.end());
  }
  const MemberStatus& voted = statuses[(plan.start_step == smax ? ahead : behind).agree.front()];
  plan.params_hash = voted.params_hash;
  plan.optimizer_hash = voted.optimizer_hash;
  std::sort(plan.sources.begin(), plan.sources.end());
  return plan;
}

}  // namespace ringmaster::rendezvous
