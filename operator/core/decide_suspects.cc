// SPDX-License-Identifier: Apache-2.0

// Workers that fell silent. Their coordinator notices within seconds; the cluster takes most of a minute to
// say that the node is lost. So the worker is replaced at once, off that node where possible, and what it was
// waits until the node's state is known: a lost node is nobody's failure and is excluded, as if it had been
// known from the start; a node that stays well charges the worker.
//
// And workers of other frameworks that ended with an error, as those do whose peer is lost with its node. No
// node is under suspicion yet, but the drain of the old gang will tell: the word that a pod has gone comes
// from its node. When the last one has gone, all nodes were well, and the failure is charged; a node that
// proves to be lost meanwhile was the cause of it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide.h"
#include "operator/core/decide_steps.h"
#include "operator/core/rules.h"

namespace ringmaster::core {
namespace {

constexpr size_t kMaxExcluded = 100;
constexpr size_t kMaxReplaced = 256;

// Of the old gang, one that its node does not let go, because it is lost.
const Pod* LostPeer(const Observed& o) {
  for (const Pod& pod : o.pods)
    if (pod.attempt < o.status.ledger.attempt && pod.alive() && IsNotReady(o, pod.node)) return &pod;
  return nullptr;
}

// The loss that explains what became of the suspect; nullopt: none is known.
std::optional<Failure> LossBehind(const Observed& o, const Suspect& suspect) {
  Failure failure;
  failure.attempt = o.status.ledger.attempt;
  failure.pod = suspect.pod;
  failure.node = suspect.node;
  failure.cause = Cause::kNodeUnreachable;
  failure.message = "the worker fell silent, and its node was not ready after that";
  failure.at = suspect.since;
  if (suspect.node.empty()) {
    const Pod* peer = LostPeer(o);
    if (peer == nullptr) return std::nullopt;
    failure.attempt = peer->attempt;
    failure.pod = peer->name;
    failure.node = peer->node;
    failure.message = "its node was not ready after " + suspect.pod + " had ended with an error";
  }
  return IsNotReady(o, failure.node) ? std::optional(std::move(failure)) : std::nullopt;
}

// Whether the last failure is what the suspect was remembered for.
bool IsOf(const Suspect& suspect, const Failure& last) {
  if (last.pod != suspect.pod) return false;
  return suspect.node.empty() ? last.at == suspect.since : last.cause == Cause::kSilent;
}

// Once more than the limit, and it ends.
Decision Charge(const Observed& o, Ledger next, Time now, std::string reason, std::vector<Event> events) {
  if (next.restarts.charged >= o.job.max_restarts)
    return Fail(
        o, std::move(next), now, Reason::kRestartBudgetSpent,
        fmt::format("a worker fell silent for a reason of its own, and restart.maxRestarts = {} is used up",
                    o.job.max_restarts));
  next.restarts.charged += 1;
  return WriteLedger(o, std::move(next), now, std::move(reason), std::move(events));
}

std::optional<Decision> JudgeLost(const Observed& o, Time now) {
  Ledger next = o.status.ledger;
  next.suspects.clear();
  std::vector<Event> events;
  bool charged = false;
  for (const Suspect& suspect : o.status.ledger.suspects) {
    std::optional<Failure> loss = LossBehind(o, suspect);
    if (!loss) {
      next.suspects.push_back(suspect);
      continue;
    }
    const RuleDecision verdict = ApplyRules(o.job.rules, *loss, {});
    loss->rule = verdict.rule;
    if (verdict.exclude_node) ExcludeNode(o.job, *loss, now, next.excluded);
    charged |= suspect.charge && verdict.charge && verdict.action != RuleAction::kIgnore;
    events.push_back(
        {true, CauseName(loss->cause),
         suspect.node.empty()
             ? fmt::format("{} was lost with its node {}: that ended {}", loss->pod, loss->node, suspect.pod)
             : fmt::format("{} fell silent with its node {}", suspect.pod, suspect.node)});
    const bool fails = verdict.action == RuleAction::kFail;
    if (fails || (next.last_failure && IsOf(suspect, *next.last_failure))) next.last_failure = loss;
    if (fails)
      return Fail(o, std::move(next), now, Reason::kRuleMatched,
                  fmt::format("{} is on the unreachable node {} ({})", loss->pod, loss->node, verdict.rule));
  }
  if (events.empty()) return std::nullopt;
  if (charged) return Charge(o, std::move(next), now, "a rule charges lost nodes", std::move(events));
  return WriteLedger(o, std::move(next), now, "workers were lost with their nodes", std::move(events));
}

// All nodes of the old gang have said that their pods are gone: counted before the next one is made.
std::optional<Decision> JudgeDrained(const Observed& o, Time now) {
  if (Draining(o)) return std::nullopt;
  Ledger next = o.status.ledger;
  bool charged = false;
  if (std::erase_if(next.suspects, [&](const Suspect& suspect) {
        charged |= suspect.node.empty() && suspect.charge;
        return suspect.node.empty();
      }) == 0)
    return std::nullopt;
  if (charged) return Charge(o, std::move(next), now, "the nodes of the old gang were well", {});
  return WriteLedger(o, std::move(next), now, "the nodes of the old gang were well");
}

}  // namespace

std::optional<Decision> CheckSuspects(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (ledger.suspects.empty()) return std::nullopt;
  if (auto decision = JudgeLost(o, now)) return decision;
  if (auto decision = JudgeDrained(o, now)) return decision;
  const Time since = ledger.suspects.front().since;
  if (now < since + kSuspicionPeriod) {
    requeue.By(since + kSuspicionPeriod);
    return std::nullopt;
  }
  // Those that fell silent together are one restart; what follows is judged after that.
  Ledger next = ledger;
  bool charged = false;
  bool avoided = false;
  std::erase_if(next.suspects, [&](const Suspect& suspect) {
    if (suspect.since != since) return false;
    charged |= suspect.charge;
    avoided |= !suspect.node.empty();
    return true;
  });
  if (avoided) ReplaceUnplaced(o, next);
  if (charged) return Charge(o, std::move(next), now, "the nodes of suspects are well", {});
  return WriteLedger(o, std::move(next), now, "the nodes of suspects are well");
}

bool IsNotReady(const Observed& o, const std::string& node) {
  return o.not_ready_nodes && std::binary_search(o.not_ready_nodes->begin(), o.not_ready_nodes->end(), node);
}

std::vector<std::string> AvoidedNodes(const Ledger& ledger, Time now) {
  std::vector<std::string> names;
  for (const Suspect& suspect : ledger.suspects)
    if (!suspect.node.empty() && now < suspect.since + kSuspicionPeriod) names.push_back(suspect.node);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void ExcludeNode(const Job& job, const Failure& failure, Time now, std::vector<ExcludedNode>& excluded) {
  if (failure.node.empty() || job.node_exclusion == Duration{0}) return;
  ExcludedNode node{failure.node, CauseName(failure.cause), now + job.node_exclusion};
  const auto at =
      std::lower_bound(excluded.begin(), excluded.end(), node.name,
                       [](const ExcludedNode& a, const std::string& name) { return a.name < name; });
  if (at != excluded.end() && at->name == node.name) {
    *at = std::move(node);
    return;
  }
  excluded.insert(at, std::move(node));
  if (excluded.size() <= kMaxExcluded) return;
  excluded.erase(std::min_element(excluded.begin(), excluded.end(),
                                  [](const auto& a, const auto& b) { return a.until < b.until; }));
}

bool DrainMayShowLostNode(const Ledger& ledger, Time now) {
  return std::any_of(ledger.suspects.begin(), ledger.suspects.end(), [&](const Suspect& suspect) {
    return suspect.node.empty() && now < suspect.since + kSuspicionPeriod;
  });
}

void ReplaceUnplaced(const Observed& o, Ledger& next) {
  if (!next.placed && o.provider != GangProvider::kNone) return;
  for (const Pod& pod : o.pods) {
    if (next.counted.size() >= kMaxReplaced) break;
    if (!InGang(o.job, next, pod) || pod.bound() || !pod.alive() || pod.deleting()) continue;
    const auto at = std::lower_bound(next.counted.begin(), next.counted.end(), pod.uid);
    if (at == next.counted.end() || *at != pod.uid) next.counted.insert(at, pod.uid);
  }
}

}  // namespace ringmaster::core
