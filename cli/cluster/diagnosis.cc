// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "cli/cluster/status_screen.h"
#include "operator/core/status.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Integer;
using json::Items;
using json::Text;

constexpr const char* kOurManager = "ringmaster.dev/operator";
constexpr size_t kWarningsShown = 3;

bool IsOver(const Json& job) {
  return Text(ConditionOf(job, "Failed"), "status") == "True" ||
         Text(ConditionOf(job, "Succeeded"), "status") == "True";
}

// What the table of reasons says to a reason: for most that are trouble, it ends with what to do.
std::string MeaningOf(std::string_view reason) {
  for (const core::ReasonText& row : core::AllReasons())
    if (core::ReasonName(row.reason) == reason) return row.text;
  return {};
}

Check Pass(const char* name, std::string finding) { return {name, CheckResult::kPass, std::move(finding), {}}; }
Check Fail(const char* name, std::string finding, std::string remedy) {
  return {name, CheckResult::kFail, std::move(finding), std::move(remedy)};
}

Check CheckOperator(const Evidence& e, kube::WallTime now) {
  constexpr const char* kName = "an operator leads";
  if (e.lease.is_null())
    return {kName, CheckResult::kUnknown, e.lease_problem,
            "look at its pods: kubectl get pods -A -l app.kubernetes.io/name=ringmaster-operator; "
            "--operator-namespace says where it is"};
  const Json& spec = Child(e.lease, "spec");
  const std::string_view holder = Text(spec, "holderIdentity");
  const auto renewed = kube::ParseWallTime(Text(spec, "renewTime"));
  const std::string where(Text(Child(e.lease, "metadata"), "namespace"));
  const std::string remedy = fmt::format(
      "kubectl -n {0} get pods; kubectl -n {0} logs -l app.kubernetes.io/name=ringmaster-operator", where);
  if (holder.empty()) return Fail(kName, "nobody holds the Lease in " + where, remedy);
  const auto limit = std::chrono::seconds(Integer(spec, "leaseDurationSeconds", 15));
  if (renewed.ok() && now - *renewed > limit + std::chrono::seconds(5))
    return Fail(
        kName,
        fmt::format("{} has not renewed the Lease for {}", holder, AgeOf(Text(spec, "renewTime"), now)),
        remedy);
  return Pass(kName, std::string(holder));
}

Check CheckSeen(const Evidence& e) {
  constexpr const char* kName = "the operator has seen the job";
  const std::string_view manager = Text(Child(e.job, "spec"), "managedBy");
  if (!manager.empty() && manager != kOurManager)
    return Fail(kName, fmt::format("spec.managedBy is {}: ours leaves it alone", manager),
               "that is another program's job; leave managedBy out for ours");
  const int64_t wanted = Integer(Child(e.job, "metadata"), "generation");
  const int64_t seen = Integer(Child(e.job, "status"), "observedGeneration");
  if (seen == 0)
    return Fail(
        kName, "it has no status",
        "is an operator there, and does it look after this namespace (chart value watchNamespaces)? Its log "
        "has a line with invalid=true when the job cannot be run");
  if (seen < wanted)
    return Fail(kName, fmt::format("the newest change is not taken up (generation {} of {})", seen, wanted),
               "wait some seconds; then look at the operator's log");
  return Pass(kName, fmt::format("generation {}", seen));
}

// The condition must have the value `wanted`; `good` is what is said then, or its message.
Check CheckCondition(const Evidence& e, const char* name, const char* type, const char* wanted) {
  const Json& condition = ConditionOf(e.job, type);
  if (condition.is_null()) return {name, CheckResult::kUnknown, "not told yet", {}};
  const std::string reason(Text(condition, "reason"));
  const std::string message(Text(condition, "message"));
  const std::string finding = reason + (message.empty() ? "" : ": " + message);
  if (Text(condition, "status") == wanted) return Pass(name, finding);
  if (reason == "NotReported" || reason == "Ended") return {name, CheckResult::kSkipped, finding, {}};
  return Fail(name, finding, MeaningOf(reason));
}

Check CheckPods(const Evidence& e) {
  constexpr const char* kName = "each worker runs";
  const std::string attempt = std::to_string(Integer(Child(e.job, "status"), "attempt"));
  size_t running = 0, of_now = 0;
  std::string trouble;
  for (const Json& pod : e.pods) {
    if (Text(Child(Child(pod, "metadata"), "labels"), wiring::kAttemptLabel) != attempt) continue;
    of_now += 1;
    const std::string state = PodState(pod);
    if (state == "Running" || state == "Succeeded")
      running += 1;
    else if (trouble.empty())
      trouble = fmt::format("{}: {}", Text(Child(pod, "metadata"), "name"), state);
  }
  if (of_now == 0) return {kName, CheckResult::kSkipped, "there are no workers of this attempt", {}};
  if (trouble.empty()) return Pass(kName, fmt::format("{} of {}", running, of_now));
  return Fail(kName, fmt::format("{} of {}; {}", running, of_now, trouble),
             fmt::format("kubectl -n {} describe pod {}", Text(Child(e.job, "metadata"), "namespace"),
                         trouble.substr(0, trouble.find(':'))));
}

Check CheckNodes(const Evidence& e) {
  constexpr const char* kName = "their nodes are well";
  if (!e.nodes_problem.empty()) return {kName, CheckResult::kUnknown, e.nodes_problem, {}};
  if (e.nodes.empty()) return {kName, CheckResult::kSkipped, "no worker has a node", {}};
  for (const Json& node : e.nodes) {
    for (const Json& condition : Items(Child(node, "status"), "conditions")) {
      if (Text(condition, "type") != "Ready" || Text(condition, "status") == "True") continue;
      const std::string_view name = Text(Child(node, "metadata"), "name");
      return Fail(kName, fmt::format("{} is not ready: {}", name, Text(condition, "message")),
                 fmt::format(
                     "kubectl describe node {}; its workers are replaced after health.unreachableNodeSeconds",
                     name));
    }
  }
  return Pass(kName, fmt::format("{} nodes", e.nodes.size()));
}

// Whether RDMA was asked for in vain is the operator's to judge; it stands in the condition.
bool FellBack(const Evidence& e) {
  return Text(ConditionOf(e.job, "FabricReady"), "reason") == core::ReasonName(core::Reason::kTcpFallback);
}

Check CheckFound(const Evidence& e) {
  constexpr const char* kName = "they found each other";
  return FellBack(e) ? Pass(kName, {}) : CheckCondition(e, kName, "FabricReady", "True");
}

Check CheckFabric(const Evidence& e) {
  constexpr const char* kName = "what was asked for carries the gradients";
  const std::string fabric(Text(Child(e.job, "status"), "fabric"));
  if (fabric.empty()) return {kName, CheckResult::kSkipped, "nothing was measured yet", {}};
  if (FellBack(e))
    return Fail(
        kName, "RDMA was asked for, and it is " + fabric,
        "kubectl ringmaster logs JOB says what UCX found; check the device plugin, IPC_LOCK and the image's "
        "ibverbs-providers");
  return Pass(kName, fabric);
}

Check CheckRestarts(const Evidence& e, kube::WallTime now) {
  constexpr const char* kName = "restarts are within the budget";
  const Json& restarts = Child(Child(e.job, "status"), "restarts");
  const Json& wish = Child(Child(e.job, "spec"), "restart");
  const int64_t charged = Integer(restarts, "charged"), budget = Integer(wish, "maxRestarts", 10);
  const int64_t barren = Integer(restarts, "withoutProgress"), most = Integer(wish, "maxWithoutProgress", 3);
  const std::string last = LastFailureText(e.job, now);
  const std::string finding = fmt::format("{} of {} charged, {} of {} without progress{}", charged, budget,
                                          barren, most, last.empty() ? "" : "; the last: " + last);
  if (charged > budget || barren > most)
    return Fail(kName, finding,
               "remove the cause of the last failure; `kubectl ringmaster logs` shows it first");
  return Pass(kName, finding);
}

Check CheckWarnings(const Evidence& e, kube::WallTime now) {
  constexpr const char* kName = "no warnings lately";
  std::vector<std::string> told;
  for (auto event = e.events.rbegin(); event != e.events.rend() && told.size() < kWarningsShown; ++event) {
    if (Text(*event, "type") != "Warning") continue;
    const std::string_view last = Text(Child(*event, "series"), "lastObservedTime");
    told.push_back(fmt::format("{} ago {}: {}", AgeOf(last.empty() ? Text(*event, "eventTime") : last, now),
                               Text(*event, "reason"), Text(*event, "note")));
  }
  if (told.empty()) return Pass(kName, "none");
  std::string finding = told[0];
  for (size_t i = 1; i < told.size(); ++i) finding += "; " + told[i];
  // They are about what has happened, so they do not say that something is wrong now.
  return {kName, CheckResult::kUnknown, finding, {}};
}

}  // namespace

std::vector<Check> Diagnose(const Evidence& e, kube::WallTime now) {
  std::vector<Check> checks;
  if (!IsOver(e.job)) checks.push_back(CheckOperator(e, now));
  checks.push_back(CheckSeen(e));
  const Json& failed = ConditionOf(e.job, "Failed");
  if (Text(failed, "status") == "True") {
    const std::string reason(Text(failed, "reason"));
    checks.push_back(
        Fail("it has not failed", fmt::format("{}: {}", reason, Text(failed, "message")),
            MeaningOf(reason) + " Start it anew: delete and apply it; it goes on from its checkpoint"));
  } else if (!IsOver(e.job)) {
    const Json& suspended = ConditionOf(e.job, "Suspended");
    if (Text(suspended, "status") == "True")
      checks.push_back(
          Fail("it is not suspended", std::string(Text(suspended, "message")),
              fmt::format("kubectl ringmaster resume {}", Text(Child(e.job, "metadata"), "name"))));
    checks.push_back(CheckCondition(e, "it is admitted", "Admitted", "True"));
    checks.push_back(CheckCondition(e, "every worker has a node", "Scheduled", "True"));
    checks.push_back(CheckPods(e));
    checks.push_back(CheckNodes(e));
    checks.push_back(CheckCondition(e, "every worker is ready", "Ready", "True"));
    checks.push_back(CheckFound(e));
    checks.push_back(CheckFabric(e));
    checks.push_back(CheckCondition(e, "steps are committed", "Progressing", "True"));
    checks.push_back(CheckCondition(e, "nothing is missing", "Degraded", "False"));
  }
  checks.push_back(CheckRestarts(e, now));
  checks.push_back(CheckWarnings(e, now));
  return checks;
}

std::string DiagnosisText(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    const char* mark = check.result == CheckResult::kPass      ? "ok  "
                       : check.result == CheckResult::kFail     ? "BAD "
                       : check.result == CheckResult::kUnknown ? "?   "
                                                            : "-   ";
    text += fmt::format("{}{}{}\n", mark, check.name, check.finding.empty() ? "" : ": " + check.finding);
    if (!check.remedy.empty()) text += fmt::format("      -> {}\n", check.remedy);
  }
  return text;
}

}  // namespace ringmaster::cli
