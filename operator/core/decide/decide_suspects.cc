// SPDX-License-Identifier: Apache-2.0

// Failures that a lost node may explain.
//
// An unresponsive worker: the coordinator notices it within seconds, while Kubernetes takes most of a minute
// to report a lost node. The worker is replaced at once, on another node where possible, and becomes a
// suspect until the state of its node is known. If the node is lost, the failure is not charged and the node
// is excluded; if the node stays ready, the worker is charged.
//
// A worker of another framework that ended with an error: workers also exit when a peer is lost with its
// node. No node is suspected yet, but the drain of the old gang shows which one it is, since only a working
// node reports that a pod has ended. When the last old pod is gone, all nodes were ready and the failure is
// charged. When a node proves to be lost before that, the loss was the cause.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/rules.h"

namespace ringmaster::core {
namespace {

constexpr size_t kMaxExcluded = 100;
constexpr size_t kMaxReplaced = 256;

// Returns a pod of an older attempt whose node was lost or has started again since then, or nullptr.
const Pod* LostPeer(const Observed& o, Time since) {
  for (const Pod& pod : o.pods) {
    if (pod.attempt >= o.status.ledger.attempt) continue;
    if (pod.lost || (pod.alive() && (IsNotReady(o, pod.node) || HasRestarted(o, pod.node, since))))
      return &pod;
  }
  return nullptr;
}

// Returns the node loss that explains the suspect's failure; nullopt when none is known.
std::optional<Failure> LossBehind(const Observed& o, const Suspect& suspect) {
  Failure failure;
  failure.attempt = o.status.ledger.attempt;
  failure.pod = suspect.pod;
  failure.node = suspect.node;
  failure.at = suspect.since;
  std::string when = "the worker became unresponsive";
  const Pod* peer = nullptr;
  if (suspect.node.empty()) {
    peer = LostPeer(o, suspect.since);
    if (peer == nullptr) return std::nullopt;
    failure.attempt = peer->attempt;
    failure.pod = peer->name;
    failure.node = peer->node;
    when = suspect.pod + " ended with an error";
  }
  if (IsNotReady(o, failure.node)) {
    failure.cause = Cause::kNodeUnreachable;
    failure.message = "its node is not ready after " + when;
  } else if ((peer != nullptr && peer->lost) || HasRestarted(o, failure.node, suspect.since)) {
    failure.cause = Cause::kLostByNode;
    failure.message = "found after " + when;
  } else {
    return std::nullopt;
  }
  return failure;
}

// Whether `last` is the failure that made the suspect one.
bool IsFailureOf(const Suspect& suspect, const Failure& last) {
  if (last.pod != suspect.pod) return false;
  return suspect.node.empty() ? last.at == suspect.since : last.cause == Cause::kSilent;
}

// Charges one restart. Fails the job when no restart is left.
Decision Charge(const Observed& o, Ledger next, Time now, std::string reason, std::vector<Event> events) {
  if (next.restarts.charged >= o.job.max_restarts)
    return Fail(
        o, std::move(next), now, Reason::kRestartBudgetSpent,
        fmt::format("a worker failed although the nodes are ready, and restart.maxRestarts = {} is used up",
                    o.job.max_restarts));
  next.restarts.charged += 1;
  return WriteLedger(o, std::move(next), now, std::move(reason), std::move(events));
}

// Closes the suspects whose failure a lost node explains.
std::optional<Decision> ResolveLostNodes(const Observed& o, Time now) {
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
    const RuleDecision ruling = ApplyRules(o.job.rules, *loss, {});
    loss->rule = ruling.rule;
    ExcludeNode(o.job, *loss, ruling, now, next.excluded);
    charged |= suspect.charge && ruling.charge && ruling.action != RuleAction::kIgnore;
    events.push_back(
        {true, CauseName(loss->cause),
         suspect.node.empty()
             ? fmt::format("{} was lost with its node {}, which ended {}", loss->pod, loss->node, suspect.pod)
             : fmt::format("{} was lost with its node {}", suspect.pod, suspect.node)});
    const bool fails = ruling.action == RuleAction::kFail;
    if (fails || (next.last_failure && IsFailureOf(suspect, *next.last_failure))) next.last_failure = loss;
    if (fails)
      return Fail(o, std::move(next), now, Reason::kRuleMatched,
                  fmt::format("{} was lost with its node {} ({})", loss->pod, loss->node, ruling.rule));
  }
  if (events.empty()) return std::nullopt;
  if (charged) return Charge(o, std::move(next), now, "a rule charges lost nodes", std::move(events));
  return WriteLedger(o, std::move(next), now, "workers were lost with their nodes", std::move(events));
}

// Closes the suspects without a node once the old gang is gone: all of its nodes were ready. The failure is
// charged before the next gang is created.
std::optional<Decision> ResolveDrained(const Observed& o, Time now) {
  if (Draining(o)) return std::nullopt;
  Ledger next = o.status.ledger;
  bool charged = false;
  if (std::erase_if(next.suspects, [&](const Suspect& suspect) {
        charged |= suspect.node.empty() && suspect.charge;
        return suspect.node.empty();
      }) == 0)
    return std::nullopt;
  if (charged) return Charge(o, std::move(next), now, "the nodes of the old gang were ready", {});
  return WriteLedger(o, std::move(next), now, "the nodes of the old gang were ready");
}

}  // namespace

std::optional<Decision> CheckSuspects(const Observed& o, Time now, Requeue& requeue) {
  const Ledger& ledger = o.status.ledger;
  if (ledger.suspects.empty()) return std::nullopt;
  if (auto decision = ResolveLostNodes(o, now)) return decision;
  if (auto decision = ResolveDrained(o, now)) return decision;
  const Time since = ledger.suspects.front().since;
  if (now < since + kSuspicionPeriod) {
    requeue.By(since + kSuspicionPeriod);
    return std::nullopt;
  }
  // Workers that became unresponsive together count as one restart. Later suspects are handled after that.
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
  if (charged) return Charge(o, std::move(next), now, "the nodes of suspects are ready", {});
  return WriteLedger(o, std::move(next), now, "the nodes of suspects are ready");
}

bool IsNotReady(const Observed& o, const std::string& node) {
  return o.not_ready_nodes && std::binary_search(o.not_ready_nodes->begin(), o.not_ready_nodes->end(), node);
}

bool HasRestarted(const Observed& o, const std::string& node, Time since) {
  return std::any_of(o.restarted_nodes.begin(), o.restarted_nodes.end(),
                     [&](const NodeRestart& restart) { return restart.name == node && restart.at > since; });
}

std::vector<std::string> AvoidedNodes(const Ledger& ledger, Time now) {
  std::vector<std::string> names;
  for (const Suspect& suspect : ledger.suspects)
    if (!suspect.node.empty() && now < suspect.since + kSuspicionPeriod) names.push_back(suspect.node);
  for (const ExcludedNode& node : ledger.excluded)
    if (node.effect == NodeEffect::kPreferNoSchedule && node.until > now) names.push_back(node.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void ExcludeNode(const Job& job, const Failure& failure, const RuleDecision& ruling, Time now,
                 std::vector<ExcludedNode>& excluded) {
  if (!ruling.exclude_node || failure.node.empty() || job.node_exclusion == Duration{0}) return;
  ExcludedNode node{failure.node, CauseName(failure.cause), now + job.node_exclusion,
                    ruling.prefer_others ? NodeEffect::kPreferNoSchedule : NodeEffect::kNoSchedule};
  const auto at =
      std::lower_bound(excluded.begin(), excluded.end(), node.name,
                       [](const ExcludedNode& a, const std::string& name) { return a.name < name; });
  if (at != excluded.end() && at->name == node.name) {
    // What a rule has said about the node still holds when it is lost, too.
    if (at->effect >= node.effect) *at = std::move(node);
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
