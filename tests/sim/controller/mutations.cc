// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/mutations.h"

#include <algorithm>

#include "operator/core/decide/decide.h"

namespace ringmaster::sim {
namespace {

using core::Decision;
using core::Observed;

constexpr const char* kClockReason = "the clock was set back";

Decision NoDrain(Observed o, Time now) {
  std::erase_if(o.pods, [&](const core::Pod& pod) { return pod.attempt != o.status.ledger.attempt; });
  return core::Decide(o, now);
}

Decision ForgetsToCharge(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions)
    if (auto* set = std::get_if<core::SetStatus>(&action))
      set->status.ledger.restarts.charged = o.status.ledger.restarts.charged;
  return decision;
}

Decision ActsBeforeCounting(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  if (decision.reason != "lost pods are replaced") return decision;
  const std::vector<std::string> counted =
      std::get<core::SetStatus>(decision.actions.front()).status.ledger.counted;
  decision.actions.clear();
  for (const core::Pod& pod : o.pods) {
    if (std::find(counted.begin(), counted.end(), pod.uid) != counted.end())
      decision.actions.push_back(core::DeletePod{pod.name, pod.uid, pod.alive() ? o.job.grace : Duration{0}});
  }
  return decision;
}

Decision ReusesAttempt(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions) {
    auto* set = std::get_if<core::SetStatus>(&action);
    if (set != nullptr && o.status.ledger.suspended) set->status.ledger.attempt = o.status.ledger.attempt;
  }
  return decision;
}

Decision MixesDecision(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  const auto* set =
      decision.actions.empty() ? nullptr : std::get_if<core::SetStatus>(&decision.actions.front());
  if (set == nullptr) return decision;
  Observed after = o;
  after.status = set->status;
  for (core::Action& action : core::Decide(after, now).actions)
    if (!std::holds_alternative<core::SetStatus>(action)) decision.actions.push_back(std::move(action));
  return decision;
}

Decision RevivesEndedJob(Observed o, Time now) {
  if (o.status.ledger.outcome == core::Outcome::kFailed) o.status.ledger.outcome = core::Outcome::kNone;
  return core::Decide(o, now);
}

Decision ActsBeforeAttempt(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  const auto* set =
      decision.actions.empty() ? nullptr : std::get_if<core::SetStatus>(&decision.actions.front());
  if (set == nullptr || set->status.ledger.attempt == o.status.ledger.attempt || !o.pods.empty())
    return decision;
  const int64_t attempt = set->status.ledger.attempt;
  decision.actions = {core::CreatePod{core::PodName(o.job.name, attempt, 0), attempt, 0}};
  return decision;
}

Decision AlwaysForce(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions)
    if (auto* remove = std::get_if<core::DeletePod>(&action)) remove->grace = Duration{0};
  return decision;
}

Decision PreemptsByForce(const Observed& o, Time now) {
  const core::Ledger& ledger = o.status.ledger;
  if (!ledger.stop_since || !ledger.preemption) return core::Decide(o, now);
  Decision decision;
  for (const core::Pod& pod : o.pods)
    decision.actions.push_back(core::DeletePod{pod.name, pod.uid, Duration{0}});
  return decision.actions.empty() ? core::Decide(o, now) : decision;
}

Decision IgnoresStop(Observed o, Time now) {
  if (o.status.ledger.stop_since && o.pods.size() < static_cast<size_t>(o.job.Target() + o.job.RolePods())) {
    o.status.ledger.stop_since.reset();
    o.job.suspend = false;
  }
  return core::Decide(o, now);
}

Decision NoOverstay(Observed o, Time now) {
  for (core::Pod& pod : o.pods)
    if (pod.delete_by) pod.delete_by = std::max(*pod.delete_by, now);
  return core::Decide(o, now);
}

Decision ReleasesWithoutRoom(Observed o, Time now) {
  o.fit = {};
  o.fit.reserved = core::WaitingRanks(core::NotBegun(o.status.ledger) ? core::Begun(o, now) : o);
  std::sort(o.fit.reserved.begin(), o.fit.reserved.end());
  return core::Decide(o, now);
}

Decision ReleasesHalfTheGang(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions)
    if (auto* release = std::get_if<core::ReleaseGang>(&action))
      release->pods.resize((release->pods.size() + 1) / 2);
  return decision;
}

Decision WithdrawsWaitingGangs(const Observed& o, Time now) {
  if (o.pods.empty()) {
    Observed other = o;
    core::Pod& pod = other.pods.emplace_back();
    pod.attempt = o.status.ledger.attempt;
    pod.gated = true;
    pod.created = o.status.ledger.attempt_since;
    Decision decision = core::Decide(other, now);
    if (decision.reason == "the gang is withdrawn") return decision;
  }
  return core::Decide(o, now);
}

Decision PreparesWaitingGangs(const Observed& o, Time now) {
  Observed other = o;
  other.provider = core::GangProvider::kScheduler;
  Decision decision = core::Decide(other, now);
  const bool prepares = std::any_of(
      decision.actions.begin(), decision.actions.end(),
      [](const core::Action& action) { return std::holds_alternative<core::PrepareGang>(action); });
  return prepares ? decision : core::Decide(o, now);
}

Decision KeepsRefusedParts(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  if (decision.reason != "the gang is withdrawn" || !o.refusal) return decision;
  return {{}, {}, now + seconds(1), "the gang is kept"};
}

Decision WithdrawsForSlowNodes(const Observed& o, Time now) {
  Observed other = o;
  other.job.autoscaler = false;
  other.all_at_once = false;
  Decision decision = core::Decide(other, now);
  return decision.reason == "the gang is withdrawn" ? decision : core::Decide(o, now);
}

Decision ForgetsExclusion(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions)
    if (auto* create = std::get_if<core::CreatePod>(&action)) create->excluded_nodes.clear();
  return decision;
}

Decision LosesCounters(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions) {
    auto* set = std::get_if<core::SetStatus>(&action);
    if (set != nullptr && set->status.ledger.attempt != o.status.ledger.attempt)
      set->status.ledger.restarts = {};
  }
  return decision;
}

Decision NeverRepairsSupport(Observed o, Time now) {
  if (!o.pods.empty() && o.status.ledger.placed)
    o.prepared =
        core::PrepareGang{o.status.ledger.attempt,
                          (o.job.in_place ? o.job.Target() : o.status.ledger.gang_size) + o.job.RolePods(),
                          (o.job.in_place ? std::min(o.job.min, o.job.Target()) : o.status.ledger.gang_size) +
                              o.job.RolePods()};
  return core::Decide(o, now);
}

Decision PodsBeforeSupport(Observed o, Time now) {
  const int32_t target = o.job.in_place ? o.job.Target() : o.status.ledger.gang_size;
  o.prepared = core::PrepareGang{o.status.ledger.attempt, target + o.job.RolePods(),
                                 (o.job.in_place ? std::min(o.job.min, target) : target) + o.job.RolePods()};
  return core::Decide(o, now);
}

// Corrects the times after a clock change, but does not write them.
Decision TrustsClock(Observed o, Time now) {
  Decision decision = core::Decide(o, now);
  for (int i = 0; i < 3 && decision.reason == kClockReason; ++i) {
    o.status = std::get<core::SetStatus>(decision.actions.front()).status;
    decision = core::Decide(o, now);
  }
  return decision;
}

Decision BooksTimeTwice(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  for (core::Action& action : decision.actions) {
    if (auto* set = std::get_if<core::SetStatus>(&action)) {
      core::Goodput& goodput = set->status.ledger.goodput;
      goodput.productive += goodput.productive - o.status.ledger.goodput.productive;
    }
  }
  return decision;
}

Decision ClearsTooEarly(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  if (!o.quota || o.pods.empty() || o.job.deleted || o.status.ended()) return decision;
  for (const core::Workload& w : o.quota->workloads) {
    if (!w.evicted || !w.reserved || w.finished) continue;
    decision.actions = {core::SetWorkloadStatus{w.name, w.uid, w.revision,
                                                core::SetWorkloadStatus::Change::kClear, w.eviction_reason}};
    decision.events.clear();
  }
  return decision;
}

Decision NeverClears(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  std::erase_if(decision.actions, [](const core::Action& action) {
    const auto* change = std::get_if<core::SetWorkloadStatus>(&action);
    return change != nullptr && change->change == core::SetWorkloadStatus::Change::kClear;
  });
  return decision;
}

Decision HoldsWorkloads(const Observed& o, Time now) {
  Decision decision = core::Decide(o, now);
  std::erase_if(decision.actions, [](const core::Action& action) {
    return std::holds_alternative<core::ReleaseWorkload>(action);
  });
  return decision;
}

}  // namespace

const char* MutationName(Mutation mutation) {
  switch (mutation) {
    case Mutation::kNone:
      return "none";
    case Mutation::kNoFreshnessGate:
      return "no-freshness-gate";
    case Mutation::kAmbiguousIsDone:
      return "ambiguous-is-done";
    case Mutation::kNoDrain:
      return "no-drain";
    case Mutation::kForgetsToCharge:
      return "forgets-to-charge";
    case Mutation::kActsBeforeCounting:
      return "acts-before-counting";
    case Mutation::kIgnoresBackoff:
      return "ignores-backoff";
    case Mutation::kForgetsToRequeue:
      return "forgets-to-requeue";
    case Mutation::kReusesAttempt:
      return "reuses-attempt";
    case Mutation::kLeavesPodsBehind:
      return "leaves-pods-behind";
    case Mutation::kMixesDecision:
      return "mixes-decision";
    case Mutation::kRevivesEndedJob:
      return "revives-ended-job";
    case Mutation::kActsBeforeAttempt:
      return "acts-before-attempt";
    case Mutation::kUnlimitedBudget:
      return "unlimited-budget";
    case Mutation::kAlwaysForce:
      return "always-force";
    case Mutation::kIgnoresStop:
      return "ignores-stop";
    case Mutation::kNoOverstay:
      return "no-overstay";
    case Mutation::kReleasesWithoutRoom:
      return "releases-without-room";
    case Mutation::kReleasesHalfTheGang:
      return "releases-half-the-gang";
    case Mutation::kNeverWithdraws:
      return "never-withdraws";
    case Mutation::kForgetsExclusion:
      return "forgets-exclusion";
    case Mutation::kIgnoresRefusal:
      return "ignores-refusal";
    case Mutation::kLosesCounters:
      return "loses-counters";
    case Mutation::kNeverRepairsSupport:
      return "never-repairs-support";
    case Mutation::kPodsBeforeSupport:
      return "pods-before-support";
    case Mutation::kTrustsClock:
      return "trusts-clock";
    case Mutation::kAgentsObeyAnyLeader:
      return "agents-obey-any-leader";
    case Mutation::kGivesUpNodesEarly:
      return "gives-up-nodes-early";
    case Mutation::kGivesUpHeardNodes:
      return "gives-up-heard-nodes";
    case Mutation::kBooksTimeTwice:
      return "books-time-twice";
    case Mutation::kChargesLostNodes:
      return "charges-lost-nodes";
    case Mutation::kForgetsSuspects:
      return "forgets-suspects";
    case Mutation::kChargesForPeers:
      return "charges-for-peers";
    case Mutation::kChargesRestarts:
      return "charges-restarts";
    case Mutation::kForgetsFirstSize:
      return "forgets-first-size";
    case Mutation::kWithdrawsWaitingGangs:
      return "withdraws-waiting-gangs";
    case Mutation::kKeepsRefusedParts:
      return "keeps-refused-parts";
    case Mutation::kWithdrawsForSlowNodes:
      return "withdraws-for-slow-nodes";
    case Mutation::kReleasesEarly:
      return "releases-early";
    case Mutation::kHoldsStrays:
      return "holds-strays";
    case Mutation::kKillsOrphans:
      return "kills-orphans";
    case Mutation::kAnyRankDecides:
      return "any-rank-decides";
    case Mutation::kIgnoresAdmission:
      return "ignores-admission";
    case Mutation::kClearsTooEarly:
      return "clears-too-early";
    case Mutation::kNeverClears:
      return "never-clears";
    case Mutation::kHoldsWorkloads:
      return "holds-workloads";
    case Mutation::kIgnoresEviction:
      return "ignores-eviction";
    case Mutation::kNeverResumes:
      return "never-resumes";
    case Mutation::kNeverGrowsAgain:
      return "never-grows-again";
    case Mutation::kPreemptsBelowMin:
      return "preempts-below-min";
    case Mutation::kPreemptsByForce:
      return "preempts-by-force";
    case Mutation::kScattersGang:
      return "scatters-gang";
    case Mutation::kForgetsDomain:
      return "forgets-domain";
    case Mutation::kLeavesStranded:
      return "leaves-stranded";
    case Mutation::kGrowsUngranted:
      return "grows-ungranted";
    case Mutation::kIgnoresDefaultQueue:
      return "ignores-default-queue";
    case Mutation::kPreparesWaitingGangs:
      return "prepares-waiting-gangs";
    case Mutation::kForgetsAges:
      return "forgets-ages";
    case Mutation::kRunsFinishedWork:
      return "runs-finished-work";
  }
  return "?";
}

Decider Mutate(Mutation mutation) {
  switch (mutation) {
    case Mutation::kNoDrain:
      return NoDrain;
    case Mutation::kForgetsToCharge:
      return ForgetsToCharge;
    case Mutation::kActsBeforeCounting:
      return ActsBeforeCounting;
    case Mutation::kIgnoresBackoff:
      return [](Observed o, Time now) {
        o.status.ledger.not_before.reset();
        return core::Decide(o, now);
      };
    case Mutation::kForgetsToRequeue:
      return [](const Observed& o, Time now) {
        Decision decision = core::Decide(o, now);
        decision.requeue_at.reset();
        return decision;
      };
    case Mutation::kReusesAttempt:
      return ReusesAttempt;
    case Mutation::kLeavesPodsBehind:
      return [](const Observed& o, Time now) { return o.status.ended() ? Decision{} : core::Decide(o, now); };
    case Mutation::kMixesDecision:
      return MixesDecision;
    case Mutation::kRevivesEndedJob:
      return RevivesEndedJob;
    case Mutation::kActsBeforeAttempt:
      return ActsBeforeAttempt;
    case Mutation::kUnlimitedBudget:
      return [](Observed o, Time now) {
        o.job.max_restarts = 1'000'000;
        return core::Decide(o, now);
      };
    case Mutation::kAlwaysForce:
      return AlwaysForce;
    case Mutation::kIgnoresStop:
      return IgnoresStop;
    case Mutation::kNoOverstay:
      return NoOverstay;
    case Mutation::kReleasesWithoutRoom:
      return ReleasesWithoutRoom;
    case Mutation::kReleasesHalfTheGang:
      return ReleasesHalfTheGang;
    case Mutation::kNeverWithdraws:
      return [](Observed o, Time now) {
        o.job.gang_timeout = Duration{0};
        return core::Decide(o, now);
      };
    case Mutation::kWithdrawsWaitingGangs:
      return WithdrawsWaitingGangs;
    case Mutation::kPreparesWaitingGangs:
      return PreparesWaitingGangs;
    case Mutation::kKeepsRefusedParts:
      return KeepsRefusedParts;
    case Mutation::kWithdrawsForSlowNodes:
      return WithdrawsForSlowNodes;
    case Mutation::kForgetsExclusion:
      return ForgetsExclusion;
    case Mutation::kIgnoresRefusal:
      return [](Observed o, Time now) {
        o.refusal.reset();
        return core::Decide(o, now);
      };
    case Mutation::kLosesCounters:
      return LosesCounters;
    case Mutation::kNeverRepairsSupport:
      return NeverRepairsSupport;
    case Mutation::kPodsBeforeSupport:
      return PodsBeforeSupport;
    case Mutation::kTrustsClock:
      return TrustsClock;
    case Mutation::kGivesUpNodesEarly:
      return [](Observed o, Time now) {
        o.job.unreachable_node_limit = Duration{0};
        return core::Decide(o, now);
      };
    case Mutation::kGivesUpHeardNodes:
      return [](Observed o, Time now) {
        if (o.report) o.report->heard_pods.clear();
        return core::Decide(o, now);
      };
    case Mutation::kBooksTimeTwice:
      return BooksTimeTwice;
    case Mutation::kChargesLostNodes:
      return [](Observed o, Time now) {
        if (o.not_ready_nodes) o.not_ready_nodes->clear();
        return core::Decide(o, now);
      };
    case Mutation::kChargesForPeers:
      return [](Observed o, Time now) {
        if (!o.job.in_place) o.not_ready_nodes.reset();
        return core::Decide(o, now);
      };
    case Mutation::kReleasesEarly:
      return [](const Observed& o, Time now) {
        Decision early;
        for (const core::Pod& pod : o.pods)
          if (pod.tracked && pod.collected) early.actions.push_back(core::UntrackPod{pod.name, pod.uid});
        return early.actions.empty() ? core::Decide(o, now) : early;
      };
    case Mutation::kHoldsStrays:
      return [](Observed o, Time now) {
        o.strays.clear();
        return core::Decide(o, now);
      };
    case Mutation::kKillsOrphans:
      return [](Observed o, Time now) {
        o.job.orphans = false;
        return core::Decide(o, now);
      };
    case Mutation::kAnyRankDecides:
      return [](Observed o, Time now) {
        for (core::Pod& pod : o.pods) {
          const bool done = pod.attempt == o.status.ledger.attempt && pod.phase == core::PodPhase::kSucceeded;
          if (done && o.job.success == core::Success::kRank0) pod.rank = 0;
        }
        return core::Decide(o, now);
      };
    case Mutation::kIgnoresAdmission:
      return [](Observed o, Time now) {
        o.quota.reset();
        return core::Decide(o, now);
      };
    case Mutation::kClearsTooEarly:
      return ClearsTooEarly;
    case Mutation::kNeverClears:
      return NeverClears;
    case Mutation::kHoldsWorkloads:
      return HoldsWorkloads;
    case Mutation::kIgnoresEviction:
      return [](Observed o, Time now) {
        if (o.quota)
          for (core::Workload& w : o.quota->workloads) w.evicted = false;
        return core::Decide(o, now);
      };
    case Mutation::kNeverResumes:
      return [](const Observed& o, Time now) {
        const core::Ledger& ledger = o.status.ledger;
        return ledger.suspended && ledger.preemption && !o.job.suspend ? Decision{} : core::Decide(o, now);
      };
    case Mutation::kGrowsUngranted:
      return [](Observed o, Time now) {
        o.job.granted.reset();
        return core::Decide(o, now);
      };
    case Mutation::kIgnoresDefaultQueue:
      return [](Observed o, Time now) {
        if (o.quota && o.quota->defaulted) o.quota.reset();
        return core::Decide(o, now);
      };
    case Mutation::kNeverGrowsAgain:
      return [](Observed o, Time now) {
        o.preemptor_waits = true;
        return core::Decide(o, now);
      };
    case Mutation::kPreemptsBelowMin:
      return [](Observed o, Time now) {
        if (o.preempt && o.preempt->workers > 1) o.preempt->workers -= 1;
        return core::Decide(o, now);
      };
    case Mutation::kPreemptsByForce:
      return PreemptsByForce;
    case Mutation::kRunsFinishedWork:
      return [](Observed o, Time now) {
        for (core::Pod& pod : o.pods) pod.finished = false;
        return core::Decide(o, now);
      };
    case Mutation::kLeavesStranded:
      return [](Observed o, Time now) {
        o.fit.stranded.clear();
        return core::Decide(o, now);
      };
    case Mutation::kChargesRestarts:
      return [](Observed o, Time now) {
        o.restarted_nodes.clear();
        for (core::Pod& pod : o.pods) pod.lost = false;
        return core::Decide(o, now);
      };
    case Mutation::kForgetsFirstSize:
      return [](Observed o, Time now) {
        core::Ledger& ledger = o.status.ledger;
        if (ledger.attempt == 1 && ledger.attempt_since == Time{} && !o.job.suspend) {
          ledger.gang_size = o.job.Target();
          ledger.attempt_since = now;
        }
        return core::Decide(o, now);
      };
    case Mutation::kForgetsSuspects:
      return [](const Observed& o, Time now) {
        Decision decision = core::Decide(o, now);
        for (core::Action& action : decision.actions)
          if (auto* create = std::get_if<core::CreatePod>(&action)) create->avoided_nodes.clear();
        return decision;
      };
    default:
      return core::Decide;
  }
}

}  // namespace ringmaster::sim
