// SPDX-License-Identifier: Apache-2.0

// wiring: renders a TrainingJob into Kubernetes objects, its pods and their supporting objects. Start reading
// here; each of the other files renders one aspect. Pure functions: the same job and context give the same
// objects, byte for byte, and `ringmaster render` prints exactly what the operator applies. Every name is a
// function of (job, attempt, rank).
//
// The user's PodTemplateSpec is merged over the defaults as a strategic merge would: containers, init
// containers, volumes, env and mounts by their keys. The user's values win, and no part of the template is
// dropped. The container that trains is `worker`, or the template's only one. The few exceptions, which the
// operator depends on, are the pod's name, the operator's labels, host name, subdomain and restartPolicy
// (Never); TemplateWarnings reports each with a sentence.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"
#include "base/result.h"
#include "operator/wiring/native_gang.h"

namespace ringmaster::wiring {

// What ensures that all pods of an attempt are scheduled, or none.
enum class Gang : uint8_t { kNone, kGate, kNative, kVolcano, kCoscheduling };

// The names of the schedulers that know the gangs of Volcano and of coscheduling, as these projects install
// them.
struct SchedulerNames {
  std::string volcano = "volcano";
  std::string coscheduling = "scheduler-plugins-scheduler";
};
// Returns the scheduler that pods of this gang need; empty: any.
std::string SchedulerOf(Gang gang, const SchedulerNames& names);
// The scheduling gate of Gang::kGate.
inline constexpr const char* kGangGate = "ringmaster.dev/gang";
// The audience of a worker's token.
inline constexpr const char* kTokenAudience = "ringmaster.dev";
// With hostNetwork, each rank of a job with trainers has this many ports, and so has each other pod.
inline constexpr int32_t kHostPortsPerRank = 8;

// What Kueue's admission adds to the pods of a role (workload.h): of flavours and admission checks.
struct Admission {
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::map<std::string, std::string> node_selector;
  std::vector<Json> tolerations;
  std::vector<std::string> scheduling_gates;
  bool operator==(const Admission&) const = default;
};

// The input besides the job: facts about the cluster and the operator.
struct Context {
  std::string worker_image;         // when the template names none
  std::string coordinator_address;  // host:port that agents call
  std::string coordinator_ca_pem;   // its certificate authority, for the job's ConfigMap; empty: no TLS
  Gang gang = Gang::kGate;
  const NativeApi* native = &kNativeApis[0];  // of Gang::kNative: the version that the cluster serves
  SchedulerNames schedulers;
  int64_t attempt = 1;
  int32_t size = 1;                         // pods of this attempt
  std::vector<std::string> excluded_nodes;  // sorted
  std::vector<std::string> avoided_nodes;   // sorted; used only without an alternative
  std::map<std::string, std::string>
      domain;                               // labels that the nodes must have: where the gang has its places
  std::map<std::string, std::string> near;  // labels that they should have
  Admission admission;                      // of the pod that is rendered
  int32_t host_port_base = 0;  // hostNetwork: the first port of this job's range; 0: none allocated
};

// Whether agents in the job's pods connect to the coordinator. They then get the coordinator's certificate
// authority and a token, and agents of trainers the job.
bool UsesCoordinator(const api::TrainingJob& job);

// Returns the supporting objects in creation order: the headless Service, the ConfigMap with the job and the
// coordinator's certificate authority (if agents need one of them), the ConfigMap with the network variables
// (if any), and the provider's gang object (if any). Each has labels and an owner reference.
std::vector<Json> ObjectsOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

// Returns one worker pod for server-side apply.
Json PodOf(const api::TrainingJob& job, const std::string& job_uid, int32_t rank, const Context& context);

// Returns the job with the template and the slots of a role's pod as those of its workers.
api::TrainingJob JobOfRole(api::TrainingJob job, const std::string& role, int32_t index);

// Returns the ranks of a gang with this number of workers: the workers', then those of each role.
std::vector<int32_t> RanksOf(const api::TrainingJob& job, int32_t workers);

// Returns a sentence, with the field and the remedy, for each part of the template that is not applied or
// does something unexpected.
std::vector<std::string> TemplateWarnings(const api::TrainingJob& job);

}  // namespace ringmaster::wiring
