// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/recovery_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {
namespace {

using Hashes = std::pair<uint64_t, uint64_t>;

struct Vote {
  std::vector<size_t> agree;     // the largest group, if it is the only one of its size
  std::vector<size_t> disagree;  // all others
  Hashes hashes;                 // of `agree`
};

Vote Compare(const std::map<Hashes, std::vector<size_t>>& groups) {
  size_t largest = 0;
  for (const auto& [hash, group] : groups) largest = std::max(largest, group.size());
  const auto is_largest = [&](const auto& entry) { return entry.second.size() == largest; };
  const bool clear = std::count_if(groups.begin(), groups.end(), is_largest) == 1;
  Vote vote;
  for (const auto& [hash, group] : groups) {
    const bool wins = clear && group.size() == largest;
    if (wins) vote.hashes = hash;
    std::vector<size_t>& to = wins ? vote.agree : vote.disagree;
    to.insert(to.end(), group.begin(), group.end());
  }
  std::sort(vote.disagree.begin(), vote.disagree.end());
  return vote;
}

// Compares the states of these members, and those that the members of `undo` keep of the step before.
Vote Compare(const std::vector<MemberStatus>& statuses, const std::vector<size_t>& at_step,
             const std::vector<size_t>& undo) {
  std::map<Hashes, std::vector<size_t>> groups;
  for (const size_t i : at_step) groups[{statuses[i].params_hash, statuses[i].optimizer_hash}].push_back(i);
  for (const size_t i : undo)
    groups[{statuses[i].undo_params_hash, statuses[i].undo_optimizer_hash}].push_back(i);
  return Compare(groups);
}

bool KnowsUndo(const MemberStatus& status) {
  return status.can_roll_back && (status.undo_params_hash != 0 || status.undo_optimizer_hash != 0);
}

// Appends both, in ascending order.
std::vector<size_t> Merged(std::vector<size_t> one, const std::vector<size_t>& other) {
  one.insert(one.end(), other.begin(), other.end());
  std::sort(one.begin(), one.end());
  return one;
}

void NoMajority(RecoveryPlan* plan, int64_t step, const std::vector<size_t>& differ) {
  plan->failure = "the states of step " + std::to_string(step) + " differ and no version has a majority";
  plan->differ = differ;
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

  const Vote ahead = Compare(statuses, leaders, {});
  if (laggards.empty() && ahead.agree.empty()) {
    NoMajority(&plan, smax, ahead.disagree);
    return plan;
  }
  const auto can_undo = [&](size_t i) { return statuses[i].can_roll_back; };
  const auto knows_undo = [&](size_t i) { return KnowsUndo(statuses[i]); };
  const bool all_can_undo = std::all_of(ahead.agree.begin(), ahead.agree.end(), can_undo);
  plan.corrupt = ahead.disagree;
  if (laggards.empty() || (!all_can_undo && !ahead.agree.empty())) {
    // The laggards fetch. Where they differ, some of them are corrupt, but it need not be known which.
    const Vote behind = Compare(statuses, laggards, {});
    plan.start_step = smax;
    plan.sources = ahead.agree;
    std::tie(plan.params_hash, plan.optimizer_hash) = ahead.hashes;
    if (behind.agree.empty()) {
      plan.stale = Merged(plan.stale, laggards);
    } else {
      plan.stale = Merged(plan.stale, behind.agree);
      plan.corrupt = Merged(plan.corrupt, behind.disagree);
    }
    return plan;
  }
  // The leaders are to go back. What they go back to is a witness, too: one laggard has no other.
  std::vector<size_t> witnesses;
  std::copy_if(ahead.agree.begin(), ahead.agree.end(), std::back_inserter(witnesses), knows_undo);
  const Vote behind = Compare(statuses, laggards, witnesses);
  if (behind.agree.empty()) {
    NoMajority(&plan, smax - 1, behind.disagree);
    return plan;
  }
  plan.corrupt = Merged(plan.corrupt, behind.disagree);
  const auto is_leader = [&](size_t i) { return statuses[i].step == smax; };
  if (std::all_of(behind.agree.begin(), behind.agree.end(), is_leader)) {
    plan.start_step = smax;  // no laggard is right, so no leader needs to go back
    plan.sources = behind.agree;
    std::tie(plan.params_hash, plan.optimizer_hash) = ahead.hashes;
    return plan;
  }
  plan.start_step = smax - 1;
  plan.sources = behind.agree;
  for (const size_t i : ahead.agree)
    if (!knows_undo(i)) plan.sources.push_back(i);
  std::sort(plan.sources.begin(), plan.sources.end());
  std::tie(plan.params_hash, plan.optimizer_hash) = behind.hashes;
  return plan;
}

}  // namespace ringmaster::rendezvous
