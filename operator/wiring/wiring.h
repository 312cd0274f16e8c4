// SPDX-License-Identifier: Apache-2.0

// From a TrainingJob to the Kubernetes objects that carry it out: pods and what stands beside them. Pure: the
// same job and context give the same objects, byte for byte; `ringmaster render` prints exactly what the
// operator applies. Every name is a function of (job, attempt, rank).
//
// The user's PodTemplateSpec is merged into ours as a strategic merge would: containers, init containers,
// volumes, env, mounts by their keys; what the user sets wins, and nothing of theirs is ever dropped. The
// container that trains is `worker`, or the only one that the template has. Exceptions, without which the
// operator could not keep its promises, are few, and each becomes a sentence of TemplateWarnings: the pod's
// name, labels of ours, host name, subdomain, restartPolicy (Never).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"
#include "base/result.h"

namespace ringmaster::wiring {

// Who makes sure that all pods of an attempt are placed, or none.
enum class Gang : uint8_t { kNone, kGate, kNative, kVolcano, kCoscheduling };

// The scheduling gate of Gang::kGate.
inline constexpr const char* kGangGate = "ringmaster.dev/gang";
// Whom a worker's token is for.
inline constexpr const char* kTokenAudience = "ringmaster.dev";
// With hostNetwork each of our own ranks has this many ports, and so has a pod of another framework; a job's
// range is those of its pods.
inline constexpr int32_t kHostPortsPerRank = 8;

// What is known of the cluster and the operator, beside the job.
struct Context {
  std::string worker_image;         // when the template names none
  std::string coordinator_address;  // host:port that agents call
  std::string coordinator_ca_pem;   // its authority; travels in the job's ConfigMap; empty: no TLS
  Gang gang = Gang::kGate;
  int64_t attempt = 1;
  int32_t size = 1;                         // pods of this attempt
  std::vector<std::string> excluded_nodes;  // sorted
  std::vector<std::string> avoided_nodes;   // sorted: rather not there
  int32_t host_port_base = 0;               // hostNetwork: first port of this job's range; 0: none allotted
};

// Whether its workers call the coordinator: they get the job, the coordinator's authority and a token then.
// Others know their work by themselves.
bool UsesCoordinator(const api::TrainingJob& job);

// What stands beside the pods, in the order in which it is made: headless Service, ConfigMap with the job and
// the coordinator's authority (for those that meet it), ConfigMap with the variables of the network set-up
// (if there are any), gang object of the provider. Each carries labels and an owner reference.
std::vector<Json> ObjectsOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

// One worker pod, as server-side apply takes it.
Json PodOf(const api::TrainingJob& job, const std::string& job_uid, int32_t rank, const Context& context);

// What of the template cannot be done, or will not do what its author may think: one sentence each, with the
// field and the remedy.
std::vector<std::string> TemplateWarnings(const api::TrainingJob& job);

// What the Pod Security level ("privileged", "baseline", "restricted") would refuse of this pod: one sentence
// each, with the field and the remedy. Empty: it would be let in.
std::vector<std::string> PodSecurityRefusals(const Json& pod, const std::string& level);

}  // namespace ringmaster::wiring
