// SPDX-License-Identifier: Apache-2.0

#include "operator/control/convert.h"

#include <algorithm>

#include "api/launch.h"
#include "api/pod_template.h"
#include "api/slots.h"
#include "operator/core/decide/rules.h"

namespace ringmaster::control {
namespace {

core::Rule FromApi(const api::RestartRule& rule) {
  core::Rule result;
  result.exit_codes = rule.on.exitCodes;
  result.node_unreachable = rule.on.nodeUnreachable;
  result.hang = rule.on.hang;
  result.pod_condition = rule.on.podCondition;
  result.message_regex = rule.on.messageRegex;
  result.action = rule.action == "Fail"     ? core::RuleAction::kFail
                  : rule.action == "Ignore" ? core::RuleAction::kIgnore
                                            : core::RuleAction::kRestart;
  result.charge = rule.charge;
  result.exclude_node = rule.excludeNode;
  return result;
}

rendezvous::ProgramRestart RestartFrom(const std::string& restart) {
  return restart == "Pod"     ? rendezvous::ProgramRestart::kAlone
         : restart == "Never" ? rendezvous::ProgramRestart::kNever
                              : rendezvous::ProgramRestart::kGang;
}

rendezvous::ProgramPolicy PolicyOf(const api::Spec& spec) {
  using Decider = rendezvous::ProgramPolicy::Decider;
  rendezvous::ProgramPolicy policy;
  policy.workers.restart = RestartFrom(api::WorkersRestart(spec));
  for (const api::Role& role : spec.roles) {
    if (api::HasPods(role))
      policy.roles.push_back(
          {role.name, role.replicas, RestartFrom(api::RestartOf(role)), api::CompletesOf(role)});
  }
  const std::string success = api::SuccessOf(spec);
  const bool launcher = success == "Launcher";
  policy.counts_ranks = launcher;
  policy.live_workers = api::HasLiveWorkers(spec);
  if (success == "Chief" || (launcher && api::FindRole(spec, api::kLauncher) != nullptr)) {
    policy.decider = Decider::kRole;
    policy.decider_role = launcher ? api::kLauncher : api::kChief;
  } else if (success == "Rank0" || launcher) {
    policy.decider = Decider::kFirst;
  }
  policy.backoff_initial = seconds(spec.restart.backoff.initialSeconds);
  policy.backoff_max = seconds(spec.restart.backoff.maxSeconds);
  policy.max_restarts = spec.restart.maxRestarts;
  policy.ruled_exit_codes = {kExitBadInput};
  for (const api::RestartRule& rule : spec.restart.rules)
    policy.ruled_exit_codes.insert(policy.ruled_exit_codes.end(), rule.on.exitCodes.begin(),
                                   rule.on.exitCodes.end());
  std::sort(policy.ruled_exit_codes.begin(), policy.ruled_exit_codes.end());
  return policy;
}

}  // namespace

core::GangMode GangModeOf(const std::string& gang) {
  if (gang == "none") return core::GangMode::kNone;
  if (gang == "gate") return core::GangMode::kGate;
  if (gang == "native") return core::GangMode::kNative;
  if (gang == "volcano") return core::GangMode::kVolcano;
  if (gang == "coscheduling") return core::GangMode::kCoscheduling;
  return core::GangMode::kAuto;
}

core::Job LifecycleOf(const api::Lifecycle& lifecycle) {
  constexpr int64_t kMost = 10LL * 365 * 24 * 3600;  // of the API
  core::Job result;
  result.active_deadline = seconds(std::clamp<int64_t>(lifecycle.activeDeadlineSeconds, 0, kMost));
  if (const auto ttl = lifecycle.ttlSecondsAfterFinished; ttl && *ttl >= 0)
    result.ttl = seconds(std::min(*ttl, kMost));
  result.clean_pods = lifecycle.cleanPods == "None"  ? core::CleanPods::kNone
                      : lifecycle.cleanPods == "All" ? core::CleanPods::kAll
                                                     : core::CleanPods::kRunning;
  return result;
}

core::Job FromApi(const api::TrainingJob& job, const std::string& uid, int64_t spec_generation) {
  const api::Spec& spec = job.spec;
  core::Job result;
  result.name = job.metadata.name;
  result.uid = uid;
  result.spec_generation = spec_generation;
  result.in_place = api::RestartsInPlace(spec);
  result.programs = api::RunsPrograms(spec);
  result.library = api::UsesLibrary(spec);
  result.suspend = spec.suspend;
  const api::Network& network = spec.network;
  result.wants_rdma = network.rdma && network.rdma->required && network.fallback != "allow";
  result.replicas = spec.workers.replicas;
  result.min = spec.workers.EffectiveMin();
  result.max = spec.workers.EffectiveMax();
  if (result.in_place) result.slots = api::ProgramsPerWorker(spec);
  result.grace = seconds(api::GraceSeconds(spec));
  result.max_restarts = spec.restart.maxRestarts;
  result.max_without_progress = spec.restart.maxWithoutProgress;
  result.backoff_initial = seconds(spec.restart.backoff.initialSeconds);
  result.backoff_max = seconds(spec.restart.backoff.maxSeconds);
  result.stop_grace = seconds(spec.restart.stopSeconds);
  result.finish_grace = seconds(api::FinishSeconds(spec));
  for (const api::RestartRule& rule : spec.restart.rules) result.rules.push_back(FromApi(rule));
  result.gang = GangModeOf(spec.scheduling.gang);
  result.gang_timeout = seconds(spec.scheduling.timeoutSeconds);
  result.gang_queue = spec.scheduling.queue;
  result.autoscaler = spec.scheduling.autoscaler;
  result.preempt = spec.scheduling.preempt;
  result.topology_required = spec.scheduling.topology.required;
  result.topology_preferred = spec.scheduling.topology.preferred;
  result.startup_limit = seconds(spec.health.startupSeconds);
  result.unreachable_node_limit = seconds(spec.health.unreachableNodeSeconds);
  result.node_exclusion = seconds(spec.health.nodeExclusionSeconds);
  const core::Job lifecycle = LifecycleOf(spec.lifecycle);
  result.active_deadline = lifecycle.active_deadline;
  result.ttl = lifecycle.ttl;
  result.clean_pods = lifecycle.clean_pods;
  if (api::SuccessOf(spec) == "Rank0") result.success = core::Success::kRank0;
  result.first_differs = api::FindRole(spec, api::kMaster) != nullptr;
  // Programs restart when workers join. A domain is chosen for all workers at once.
  result.surplus = result.in_place && !result.programs && spec.roles.empty() &&
                   result.TopologyKey().empty() && !api::AsksKueueForTopology(spec.workers.template_);
  if (result.programs) result.policy = PolicyOf(spec);
  return result;
}

void KeepPrograms(const api::TrainingJob& job, core::Job* result) {
  result->in_place = result->programs = true;
  result->slots = api::ProgramsPerWorker(job.spec);
}

Key KeyOf(const api::TrainingJob& job) { return {job.metadata.namespace_, job.metadata.name}; }

}  // namespace ringmaster::control
