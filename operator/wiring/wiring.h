// From a TrainingJob to the Kubernetes objects that carry it out: pods and what stands beside them. Pure: the
// same job and context give the same objects, byte for byte; `ringmaster render` prints exactly what the
// operator applies. Every name is a function of (job, attempt, rank).
//
// The user's PodTemplateSpec is merged into ours as a strategic merge would: containers, init containers,
// volumes, env, mounts by their keys; what the user sets wins, and nothing of theirs is ever dropped.
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

// What is known of the cluster and the operator, beside the job.
struct Context {
  std::string worker_image;         // when the template names none
  std::string coordinator_address;  // host:port that agents call
  std::string coordinator_ca_pem;   // its authority; travels in the job's ConfigMap
  Gang gang = Gang::kGate;
  int64_t attempt = 1;
  int32_t size = 1;                         // pods of this attempt
  std::vector<std::string> excluded_nodes;  // sorted
  int32_t host_port_base = 0;               // hostNetwork: first port of this job's range
  std::string cluster_domain = "cluster.local";
};

// What stands beside the pods, in the order in which it is made: headless Service, ConfigMap with the job and
// the coordinator's authority, gang object of the provider. Each carries labels and an owner reference.
std::vector<Json> ObjectsOf(const api::TrainingJob& job, const std::string& job_uid, const Context& context);

// One worker pod, as server-side apply takes it.
Json PodOf(const api::TrainingJob& job, const std::string& job_uid, int32_t rank, const Context& context);

// What the Pod Security level ("privileged", "baseline", "restricted") would refuse of this pod: one sentence
// each, with the field and the remedy. Empty: it would be let in.
std::vector<std::string> PodSecurityRefusals(const Json& pod, const std::string& level);

}  // namespace ringmaster::wiring
