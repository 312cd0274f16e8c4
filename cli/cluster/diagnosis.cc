// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "cli/cluster/status_screen.h"
#include "operator/core/status.h"
#include "operator/wiring/names.h"
#include "operator/wiring/workload.h"

namespace ringmaster::cli {
namespace {

using json::Child;
using json::Integer;
using json::Items;
using json::Text;

constexpr const char* kOurManager = "ringmaster.dev/operator";
constexpr size_t kWarningsShown = 3;

bool HasEnded(const Json& job) {
  return Text(ConditionOf(job, "Failed"), "status") == "True" ||
         Text(ConditionOf(job, "Succeeded"), "status") == "True";
}

// Returns the description of a condition reason; for most failures it ends with the remedy.
std::string MeaningOf(std::string_view reason) {
  for (const core::ReasonText& row : core::AllReasons())
    if (core::ReasonName(row.reason) == reason) return row.text;
  return {};
}

Check Pass(const char* name, std::string finding) {
  return {name, CheckResult::kPass, std::move(finding), {}};
}
Check Fail(const char* name, std::string finding, std::string remedy) {
  return {name, CheckResult::kFail, std::move(finding), std::move(remedy)};
}

Check CheckOperator(const Evidence& e, kube::WallTime now) {
  constexpr const char* kName = "an operator is leading";
  if (e.lease.is_null())
    return {kName, CheckResult::kUnknown, e.lease_problem,
            "look at its pods: kubectl get pods -A -l app.kubernetes.io/name=ringmaster-operator; "
            "set --operator-namespace to their namespace"};
  const Json& spec = Child(e.lease, "spec");
  const std::string_view holder = Text(spec, "holderIdentity");
  const auto renewed = kube::ParseWallTime(Text(spec, "renewTime"));
  const std::string where(Text(Child(e.lease, "metadata"), "namespace"));
  const std::string remedy = fmt::format(
      "kubectl -n {0} get pods; kubectl -n {0} logs -l app.kubernetes.io/name=ringmaster-operator", where);
  if (holder.empty()) return Fail(kName, "no operator holds the Lease in " + where, remedy);
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
  const bool queued = !Text(Child(Child(e.job, "metadata"), "labels"), wiring::kQueueNameLabel).empty();
  if (manager == wiring::kMultiKueue && queued) {
    if (Child(e.job, "status").is_object())
      return Pass(kName, "MultiKueue runs it on another cluster, and copies the status from there");
    return Fail(kName, "MultiKueue has not started it on another cluster",
                "look at the conditions and admission checks of its Workload: kubectl describe "
                "workloads.kueue.x-k8s.io");
  }
  if (!manager.empty() && manager != kOurManager)
    return Fail(kName, fmt::format("spec.managedBy is {}: the operator ignores the job", manager),
                "another program manages this job; remove managedBy to let Ringmaster manage it");
  const int64_t wanted = Integer(Child(e.job, "metadata"), "generation");
  const int64_t seen = Integer(Child(e.job, "status"), "observedGeneration");
  if (seen <= 0)
    return Fail(
        kName, "it has no status",
        "check that an operator runs and watches this namespace (chart value watchNamespaces); its log has a "
        "line with invalid=true when the spec is invalid");
  if (seen < wanted)
    return Fail(kName,
                fmt::format("it has not processed the latest change (generation {} of {})", seen, wanted),
                "wait a few seconds, then look at the operator's log");
  return Pass(kName, fmt::format("generation {}", seen));
}

// Passes when the condition has the status `wanted`. The finding is its reason and message.
Check CheckCondition(const Evidence& e, const char* name, const char* type, const char* wanted) {
  const Json& condition = ConditionOf(e.job, type);
  if (condition.is_null()) return {name, CheckResult::kUnknown, "not reported yet", {}};
  const std::string reason(Text(condition, "reason"));
  const std::string message(Text(condition, "message"));
  const std::string finding = reason + (message.empty() ? "" : ": " + message);
  if (Text(condition, "status") == wanted) return Pass(name, finding);
  if (reason == "NotReported" || reason == "Ended") return {name, CheckResult::kSkipped, finding, {}};
  return Fail(name, finding, MeaningOf(reason));
}

Check CheckPods(const Evidence& e) {
  constexpr const char* kName = "every pod is running";
  const std::string attempt = std::to_string(Integer(Child(e.job, "status"), "attempt"));
  size_t running = 0, total = 0;
  std::string problem;
  for (const Json& pod : e.pods) {
    if (Text(Child(Child(pod, "metadata"), "labels"), wiring::kAttemptLabel) != attempt) continue;
    total += 1;
    const std::string state = PodState(pod);
    if (state == "Running" || state == "Succeeded")
      running += 1;
    else if (problem.empty())
      problem = fmt::format("{}: {}", Text(Child(pod, "metadata"), "name"), state);
  }
  if (total == 0) return {kName, CheckResult::kSkipped, "this attempt has no pods", {}};
  if (problem.empty()) return Pass(kName, fmt::format("{} of {}", running, total));
  return Fail(kName, fmt::format("{} of {}; {}", running, total, problem),
              fmt::format("kubectl -n {} describe pod {}", Text(Child(e.job, "metadata"), "namespace"),
                          problem.substr(0, problem.find(':'))));
}

Check CheckNodes(const Evidence& e) {
  constexpr const char* kName = "the nodes are ready";
  if (!e.nodes_problem.empty()) return {kName, CheckResult::kUnknown, e.nodes_problem, {}};
  if (e.nodes.empty()) return {kName, CheckResult::kSkipped, "no worker has a node", {}};
  for (const Json& node : e.nodes) {
    for (const Json& condition : Items(Child(node, "status"), "conditions")) {
      if (Text(condition, "type") != "Ready" || Text(condition, "status") == "True") continue;
      const std::string_view name = Text(Child(node, "metadata"), "name");
      return Fail(kName, fmt::format("{} is not ready: {}", name, Text(condition, "message")),
                  fmt::format("kubectl describe node {}; the operator replaces its workers after "
                              "health.unreachableNodeSeconds",
                              name));
    }
  }
  return Pass(kName, fmt::format("{} nodes", e.nodes.size()));
}

// Whether the job requested RDMA and runs over TCP. The operator decides this and sets the condition.
bool FellBackToTcp(const Evidence& e) {
  return Text(ConditionOf(e.job, "FabricReady"), "reason") == core::ReasonName(core::Reason::kTcpFallback);
}

Check CheckConnected(const Evidence& e) {
  constexpr const char* kName = "the workers are connected";
  return FellBackToTcp(e) ? Pass(kName, {}) : CheckCondition(e, kName, "FabricReady", "True");
}

Check CheckFabric(const Evidence& e) {
  constexpr const char* kName = "gradients use the requested fabric";
  const std::string fabric(Text(Child(e.job, "status"), "fabric"));
  if (fabric.empty()) return {kName, CheckResult::kSkipped, "not reported yet", {}};
  if (FellBackToTcp(e))
    return Fail(
        kName, "the job requests RDMA and runs over " + fabric,
        "kubectl ringmaster logs JOB shows the transports that UCX found; check the device plugin, IPC_LOCK "
        "and the image's ibverbs-providers");
  return Pass(kName, fabric);
}

Check CheckRestarts(const Evidence& e, kube::WallTime now) {
  constexpr const char* kName = "restarts are within the budget";
  const Json& restarts = Child(Child(e.job, "status"), "restarts");
  const Json& limits = Child(Child(e.job, "spec"), "restart");
  const int64_t charged = Integer(restarts, "charged"), max_charged = Integer(limits, "maxRestarts", 10);
  const int64_t idle = Integer(restarts, "withoutProgress"),
                max_idle = Integer(limits, "maxWithoutProgress", 3);
  const std::string last = LastFailureText(e.job, now);
  const std::string finding =
      fmt::format("{} of {} charged, {} of {} without progress{}", charged, max_charged, idle, max_idle,
                  last.empty() ? "" : "; last failure: " + last);
  if (charged > max_charged || idle > max_idle)
    return Fail(kName, finding,
                "remove the cause of the last failure; `kubectl ringmaster logs` prints it first");
  return Pass(kName, finding);
}

Check CheckWarnings(const Evidence& e, kube::WallTime now) {
  constexpr const char* kName = "there are no recent warnings";
  std::vector<std::string> warnings;
  for (auto event = e.events.rbegin(); event != e.events.rend() && warnings.size() < kWarningsShown;
       ++event) {
    if (Text(*event, "type") != "Warning") continue;
    const std::string_view last = Text(Child(*event, "series"), "lastObservedTime");
    warnings.push_back(fmt::format("{} ago {}: {}",
                                   AgeOf(last.empty() ? Text(*event, "eventTime") : last, now),
                                   Text(*event, "reason"), Text(*event, "message")));
  }
  if (warnings.empty()) return Pass(kName, "none");
  std::string finding = warnings[0];
  for (size_t i = 1; i < warnings.size(); ++i) finding += "; " + warnings[i];
  // Warnings describe the past. They do not prove that something is wrong now.
  return {kName, CheckResult::kUnknown, finding, {}};
}

}  // namespace

std::vector<Check> Diagnose(const Evidence& e, kube::WallTime now) {
  std::vector<Check> checks;
  if (!HasEnded(e.job)) checks.push_back(CheckOperator(e, now));
  checks.push_back(CheckSeen(e));
  const Json& failed = ConditionOf(e.job, "Failed");
  if (Text(failed, "status") == "True") {
    const std::string reason(Text(failed, "reason"));
    checks.push_back(Fail(
        "the job has not failed", fmt::format("{}: {}", reason, Text(failed, "message")),
        MeaningOf(reason) + " To restart the job, delete and apply it; it continues from its checkpoint"));
  } else if (!HasEnded(e.job)) {
    const Json& suspended = ConditionOf(e.job, "Suspended");
    if (Text(suspended, "status") == "True")
      checks.push_back(
          Fail("the job is not suspended", std::string(Text(suspended, "message")),
               fmt::format("kubectl ringmaster resume {}", Text(Child(e.job, "metadata"), "name"))));
    checks.push_back(CheckCondition(e, "the job is admitted", "Admitted", "True"));
    checks.push_back(CheckCondition(e, "every worker has a node", "Scheduled", "True"));
    checks.push_back(CheckPods(e));
    checks.push_back(CheckNodes(e));
    checks.push_back(CheckCondition(e, "every worker is ready", "Ready", "True"));
    checks.push_back(CheckConnected(e));
    checks.push_back(CheckFabric(e));
    checks.push_back(CheckCondition(e, "steps are committed", "Progressing", "True"));
    checks.push_back(CheckCondition(e, "the job is not degraded", "Degraded", "False"));
  }
  checks.push_back(CheckRestarts(e, now));
  checks.push_back(CheckWarnings(e, now));
  return checks;
}

std::string DiagnosisText(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    const char* mark = check.result == CheckResult::kPass      ? "ok  "
                       : check.result == CheckResult::kFail    ? "BAD "
                       : check.result == CheckResult::kUnknown ? "?   "
                                                               : "-   ";
    text += fmt::format("{}{}{}\n", mark, check.name, check.finding.empty() ? "" : ": " + check.finding);
    if (!check.remedy.empty()) text += fmt::format("      -> {}\n", check.remedy);
  }
  return text;
}

}  // namespace ringmaster::cli
