// SPDX-License-Identifier: Apache-2.0

#include "api/launcher_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "api/launch.h"
#include "api/launchers.h"

namespace ringmaster::api {
namespace {

// The options of torchrun that contradict the variables of the agent, without nnodes and standalone.
constexpr std::array<std::string_view, 7> kRendezvousOptions = {
    "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "node_rank", "master_addr", "master_port"};

const LauncherOption* FindOption(const std::vector<LauncherOption>& options, std::string_view name) {
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const LauncherOption& option) { return option.name == name; });
  return found == options.end() ? nullptr : &*found;
}

// Whether the shell takes the value from a variable, such as those of the agent.
bool UsesVariable(const LauncherCall& call, const std::string& value) {
  return call.in_shell && value.find('$') != std::string::npos;
}

class LauncherRules {
 public:
  explicit LauncherRules(const Spec& spec)
      : spec_(spec),
        several_(spec.workers.EffectiveMax() > 1),
        torch_(spec.framework == "pytorch" || spec.framework == "deepspeed") {}

  // Returns why this template cannot train; empty: nothing is known against it.
  std::string Check(const Json& pod_template) const {
    const std::vector<LauncherCall> calls = FindLaunchers(pod_template);
    if (LaunchesRanks(spec_)) return CheckLauncherPod(calls);
    for (const LauncherCall& call : calls)
      if (std::string problem = CheckCall(call); !problem.empty()) return problem;
    return "";
  }

 private:
  // The command of frameworks mpi and horovod runs in one pod.
  std::string CheckLauncherPod(const std::vector<LauncherCall>& calls) const {
    const auto starts_everywhere = [&](const LauncherCall& call) {
      return call.kind == LauncherKind::kMpirun ||
             (call.kind == LauncherKind::kHorovodrun && spec_.framework == "horovod");
    };
    if (calls.empty() || std::any_of(calls.begin(), calls.end(), starts_everywhere)) return "";
    const LauncherCall& call = calls.front();
    if (call.kind == LauncherKind::kHorovodrun)
      return fmt::format(
          "{} needs the framework horovod, whose agents it starts ranks through; set spec.framework to it",
          call.name);
    return fmt::format(
        "framework {} runs the command in one pod only, and {} starts no ranks in the others; call {}, or "
        "set "
        "spec.framework to {}",
        spec_.framework, call.name, spec_.framework == "mpi" ? "mpirun" : "horovodrun or mpirun",
        call.kind == LauncherKind::kDeepspeed ? "deepspeed" : "pytorch");
  }

  std::string CheckCall(const LauncherCall& call) const {
    switch (call.kind) {
      case LauncherKind::kTorchrun:
        return several_ ? CheckTorchrun(call) : "";
      case LauncherKind::kDeepspeed:
        return several_ ? CheckDeepspeed(call) : "";
      case LauncherKind::kAccelerate:
        return several_ ? CheckAccelerate(call) : "";
      case LauncherKind::kHorovodrun:
      case LauncherKind::kMpirun: {
        if (!several_) return "";
        const char* framework = call.kind == LauncherKind::kMpirun ? "mpi" : "horovod";
        return fmt::format(
            "every worker runs the command, so each {} would start a separate training; set spec.framework "
            "to {}, "
            "which runs it once and lets it reach the other workers",
            call.name, framework);
      }
      case LauncherKind::kSrun:
        return fmt::format(
            "{} needs Slurm, which has no part in this job; start the program behind it without {}",
            call.name, call.name);
    }
    return "";
  }

  std::string CheckTorchrun(const LauncherCall& call) const {
    const std::vector<LauncherOption> options = OptionsOf(call);
    const LauncherOption* nodes = FindOption(options, "nnodes");
    if (!torch_ && nodes == nullptr)
      return fmt::format(
          "{} would train alone in each worker: the agent sets its variables with the frameworks pytorch and "
          "deepspeed only (got {}); set spec.framework to pytorch",
          call.name, spec_.framework);
    if (FindOption(options, "standalone") != nullptr)
      return Contradicts(call, "--standalone",
                         "each worker would wait for the others in a rendezvous of its host");
    const bool fixed = !spec_.workers.min && !spec_.workers.max;
    if (nodes != nullptr && !UsesVariable(call, nodes->value) &&
        !(fixed && nodes->value == std::to_string(spec_.workers.replicas)))
      return Contradicts(call, fmt::format("--nnodes={}", nodes->value),
                         fmt::format("the job has {} workers", spec_.workers.EffectiveMax()));
    for (const std::string_view name : kRendezvousOptions) {
      const LauncherOption* option = FindOption(options, name);
      if (option == nullptr || !torch_ || UsesVariable(call, option->value)) continue;
      std::string written = "--" + option->name;
      std::replace(written.begin(), written.end(), '_', '-');
      return Contradicts(call, written, "the addresses of the workers are known only when they start");
    }
    return "";
  }

  std::string Contradicts(const LauncherCall& call, const std::string& option, const std::string& why) const {
    return fmt::format("{} {} contradicts the variables PET_* of the agent: {}; remove {}{}", call.name,
                       option, why, option.substr(0, option.find('=')),
                       torch_ ? "" : ", and set spec.framework to pytorch");
  }

  std::string CheckDeepspeed(const LauncherCall& call) const {
    const std::vector<LauncherOption> options = OptionsOf(call);
    const LauncherOption* rank = FindOption(options, "node_rank");
    if (FindOption(options, "no_ssh") != nullptr && rank != nullptr && UsesVariable(call, rank->value))
      return "";
    return fmt::format(
        "each worker would train alone: without hosts and ssh {} starts ranks in its pod only; use torchrun "
        "with the "
        "same script and options (DeepSpeed reads its variables), or run the script itself, one rank for "
        "each of "
        "spec.workers.slots",
        call.name);
  }

  std::string CheckAccelerate(const LauncherCall& call) const {
    const std::vector<LauncherOption> options = OptionsOf(call);
    const LauncherOption* machines = FindOption(options, "num_machines");
    const LauncherOption* rank = FindOption(options, "machine_rank");
    if (machines != nullptr && rank != nullptr && UsesVariable(call, rank->value)) return "";
    return fmt::format(
        "each worker would train alone: {} takes the number of machines from its options; use torchrun with "
        "the same "
        "script (Accelerate reads its variables), or give it --num_machines=$PET_NNODES "
        "--machine_rank=$PET_NODE_RANK "
        "--main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT in a shell",
        call.name);
  }

  const Spec& spec_;
  const bool several_;
  const bool torch_;
};

}  // namespace

void CheckLaunchers(const TrainingJob& job, const std::function<void(std::string, std::string)>& add) {
  const Spec& spec = job.spec;
  if (spec.framework == "native" || UsesLibrary(spec)) return;
  const LauncherRules rules(spec);
  const auto check = [&](const std::string& path, const Json& pod_template) {
    if (pod_template.is_null()) return;
    if (std::string problem = rules.Check(pod_template); !problem.empty())
      add(path + ".spec.containers", std::move(problem));
  };
  if (!LaunchesRanks(spec) || WorkersNeedCommand(spec))
    check("spec.workers.template", spec.workers.template_);
  for (size_t i = 0; i < spec.roles.size(); ++i)
    check(fmt::format("spec.roles[{}].template", i), spec.roles[i].template_);
}

}  // namespace ringmaster::api
