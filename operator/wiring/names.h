// SPDX-License-Identifier: Apache-2.0

// Names and labels of a job's objects. All are functions of (job, attempt, rank), so that creating an object
// twice is harmless, and have at most 63 characters, since job names have at most 48. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

inline constexpr const char* kJobLabel = "ringmaster.dev/job";
inline constexpr const char* kAttemptLabel = "ringmaster.dev/attempt";
inline constexpr const char* kRankLabel = "ringmaster.dev/rank";
inline constexpr const char* kRoleLabel = "ringmaster.dev/role";  // of jobs with roles
// Velero leaves objects with it out of its backups.
inline constexpr const char* kExcludeFromBackupLabel = "velero.io/exclude-from-backup";
// Annotation of a pod: the name of the container that trains. Webhooks may add containers before it.
inline constexpr const char* kWorkerAnnotation = "ringmaster.dev/worker-container";
inline constexpr const char* kQueueLabel = "ringmaster.dev/queue";  // set when the queue's name fits

// The headless Service, and the subdomain of the pods' host names. Begins with a letter, as the API server
// requires, even when the job's name does not.
std::string ServiceName(const std::string& job);
// The ConfigMap with the job and the coordinator's certificate authority.
std::string ConfigName(const std::string& job);
// The ConfigMap with the network variables.
std::string NetworkConfigName(const std::string& job);
// The gang object. One per attempt, since a provider's decision about a group is final.
std::string GroupName(const std::string& job, int64_t attempt);

// The labels of the supporting objects, and of a pod.
Json JobLabels(const api::TrainingJob& job);
Json PodLabels(const api::TrainingJob& job, int64_t attempt, int32_t rank);

// Returns {apiVersion, kind, metadata} with name, namespace, labels and the job as the controlling owner.
Json NewObject(const std::string& api_version, const std::string& kind, const std::string& name,
               const api::TrainingJob& job, const std::string& job_uid);

}  // namespace ringmaster::wiring
