// SPDX-License-Identifier: Apache-2.0

// How the ranks of a job start, and how long they have to stop. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/training_job.h"

namespace ringmaster::api {

// Whether the ranks are programs that know nothing of Ringmaster: a framework other than native with
// `launch.kind: ranks`. One that fails ends all others.
bool RunsPrograms(const Spec& spec);

// Whether the ranks are programs that train through libringmaster: a framework other than native with
// `launch.kind: library`.
bool UsesLibrary(const Spec& spec);

// Whether the ranks are trainers, which keep the training state when another one fails: framework native, or
// `launch.kind: library`.
bool RunsTrainers(const Spec& spec);

// Whether an agent in each pod starts the command of `workers.template`: RunsPrograms or UsesLibrary.
bool RunsCommand(const Spec& spec);

// Whether ranks restart in their pods: an agent keeps them, and a coordinator orders when they start. Only a
// lost pod is created again. Otherwise a failure replaces all pods.
bool RestartsInPlace(const Spec& spec);

// Whether the command of a framework is a launcher, which starts the ranks in all workers: mpi and horovod.
bool HasLauncher(std::string_view framework);

// Whether one program launches the ranks in all workers: HasLauncher with an agent in each pod.
bool LaunchesRanks(const Spec& spec);

// How the ranks of such a job communicate: `launch.mpi`, or gloo in a job of framework horovod without it.
// REQUIRES: LaunchesRanks, and the job is valid.
std::string LaunchedBy(const Spec& spec);

// Whether workers come and go while the launcher runs: framework horovod with `workers.min` or `max`.
bool HasLiveWorkers(const Spec& spec);

// Returns how many programs the agents of a worker's pod start: `workers.slots`, but one with LaunchesRanks.
// REQUIRES: the job is valid.
int32_t ProgramsPerWorker(const Spec& spec);

// Whether the template of the workers must have a command: not where only a launcher with its own template
// runs one.
bool WorkersNeedCommand(const Spec& spec);

// Returns the time that a pod has from SIGTERM to SIGKILL: `checkpoint.gracePeriodSeconds`, or more when its
// agent gives the ranks more time to stop.
int32_t GraceSeconds(const Spec& spec);

// Returns how long a pod may take to end by itself after the job has: in a job with the library, the code of
// the user that follows the training loop.
int32_t FinishSeconds(const Spec& spec);

// ---- roles

// The role of TensorFlow's jobs whose success is that of the job, and PyTorchJob's name of the first worker.
inline constexpr const char* kChief = "chief";
inline constexpr const char* kEvaluator = "evaluator";
inline constexpr const char* kParameterServer = "ps";
inline constexpr const char* kMaster = "master";
// The pod that starts the ranks of mpi and horovod and runs none itself. Without this role the first worker
// starts them.
inline constexpr const char* kLauncher = "launcher";

// Returns the roles that a framework knows besides its workers, separated by "|". Empty: none.
std::string_view RolesOf(std::string_view framework);

// Returns nullptr when the job has no such role.
const Role* FindRole(const Spec& spec, std::string_view name);

// Whether the role has pods: `master` is the first worker with another template.
bool HasPods(const Role& role);

// `restart`, or its default: Pod for ps and evaluator, otherwise Gang.
std::string RestartOf(const Role& role);

// `restart` of the workers: Pod in a job with parameter servers or with live workers, otherwise Gang.
std::string WorkersRestart(const Spec& spec);

// `completes`, or its default: false for ps and evaluator, which run until the job ends.
bool CompletesOf(const Role& role);

// `lifecycle.success`, or its default: Chief in a job with a chief, Launcher for frameworks with a launcher,
// otherwise AllWorkers.
std::string SuccessOf(const Spec& spec);

// Returns the template of the pods of a role, or of the worker `index` when `role` is empty.
const Json& TemplateOf(const Spec& spec, std::string_view role, int32_t index);

// Returns the PriorityClass of the pods of a template: its own one, otherwise that of `scheduling`. Empty:
// they name none.
std::string PriorityClassOf(const Spec& spec, const Json& pod_template);

}  // namespace ringmaster::api
