// Workers that fell silent. Their coordinator notices within seconds; the cluster takes most of a minute to
// say that the node is lost. So the worker is replaced at once, off that node where possible, and what it was
// waits until the node's state is known: a lost node is nobody's failure and is excluded, as if it had been
// known from the start; a node that stays well charges the worker.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/core/decide.h"
#include "operator/core/rules.h"
#include "operator/core/steps.h"

namespace ringmaster::core {
namespace {

constexpr size_t kMaxExcluded = 100;
constexpr size_t kMaxReplaced = 256;

Failure LostWith(const Suspect& suspect, const Ledger& ledger) {
  Failure failure;
  failure.attempt = ledger.attempt;
  failure.pod = suspect.pod;
  failure.node = suspect.node;
  failure.cause = Cause::kNodeUnreachable;
  failure.message = "the worker fell silent, and its node was not ready after that";
  failure.at = suspect.since;
  return failure;
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
  std::vector<Event> events;
  bool charged = false;
  bool found = false;
  for (const Suspect& suspect : o.status.ledger.suspects) {
    if (!Sick(o, suspect.node)) continue;
    found = true;
    Failure failure = LostWith(suspect, next);
    const Verdict verdict = Judge(o.job.rules, failure, {});
    failure.rule = verdict.rule;
    if (verdict.exclude_node) Exclude(o.job, failure, now, next.excluded);
    charged |= suspect.charge && verdict.charge && verdict.action != RuleAction::kIgnore;
    events.push_back({true, CauseName(failure.cause),
                      fmt::format("{} fell silent with its node {}", suspect.pod, suspect.node)});
    auto& last = next.last_failure;
    const bool fails = verdict.action == RuleAction::kFail;
    if (fails || (last && last->pod == suspect.pod && last->attempt == failure.attempt &&
                  last->cause == Cause::kSilent))
      last = failure;
    if (fails)
      return Fail(
          o, std::move(next), now, Reason::kRuleMatched,
          fmt::format("{} is on the unreachable node {} ({})", failure.pod, failure.node, verdict.rule));
  }
  if (!found) return std::nullopt;
  std::erase_if(next.suspects, [&](const Suspect& suspect) { return Sick(o, suspect.node); });
  if (charged) return Charge(o, std::move(next), now, "a rule charges lost nodes", std::move(events));
  return WriteLedger(o, std::move(next), now, "silent workers were lost with their nodes", std::move(events));
}

}  // namespace

std::optional<Decision> CheckSuspects(const Observed& o, Time now, Wake& wake) {
  const Ledger& ledger = o.status.ledger;
  if (ledger.suspects.empty()) return std::nullopt;
  if (auto decision = JudgeLost(o, now)) return decision;
  const Time since = ledger.suspects.front().since;
  if (now < since + kSuspicion) {
    wake.By(since + kSuspicion);
    return std::nullopt;
  }
  // Those that fell silent together are one restart; what follows is judged after that.
  Ledger next = ledger;
  bool charged = false;
  std::erase_if(next.suspects, [&](const Suspect& suspect) {
    charged |= suspect.since == since && suspect.charge;
    return suspect.since == since;
  });
  ReplaceUnplaced(o, next);
  if (charged) return Charge(o, std::move(next), now, "the node of a silent worker is well", {});
  return WriteLedger(o, std::move(next), now, "the node of a silent worker is well");
}

bool Sick(const Observed& o, const std::string& node) {
  return o.sick_nodes && std::binary_search(o.sick_nodes->begin(), o.sick_nodes->end(), node);
}

std::vector<std::string> Avoided(const Ledger& ledger, Time now) {
  std::vector<std::string> names;
  for (const Suspect& suspect : ledger.suspects)
    if (now < suspect.since + kSuspicion) names.push_back(suspect.node);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void Exclude(const Job& job, const Failure& failure, Time now, std::vector<ExcludedNode>& excluded) {
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

void ReplaceUnplaced(const Observed& o, Ledger& next) {
  if (!next.placed && o.provider != GangProvider::kNone) return;
  for (const Pod& pod : o.pods) {
    if (next.counted.size() >= kMaxReplaced) break;
    if (!OfGang(o.job, next, pod) || pod.bound() || !pod.alive() || pod.deleting()) continue;
    const auto at = std::lower_bound(next.counted.begin(), next.counted.end(), pod.uid);
    if (at == next.counted.end() || *at != pod.uid) next.counted.insert(at, pod.uid);
  }
}

}  // namespace ringmaster::core
