// SPDX-License-Identifier: Apache-2.0

// Names and labels of everything that belongs to a job. All are functions of (job, attempt, rank), so that
// making a thing twice is harmless, and all fit into 63 characters, since names of jobs have at most 48. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

inline constexpr const char* kJobLabel = "ringmaster.dev/job";
inline constexpr const char* kAttemptLabel = "ringmaster.dev/attempt";
inline constexpr const char* kRankLabel = "ringmaster.dev/rank";
inline constexpr const char* kQueueLabel = "ringmaster.dev/queue";  // where the queue's name fits

// The headless Service, and the subdomain of the pods' host names. Begins with a letter, whatever the job's
// name begins with: API servers want it.
std::string ServiceName(const std::string& job);
// The ConfigMap with the job and the coordinator's authority.
std::string ConfigName(const std::string& job);
// The ConfigMap with the variables of the network set-up.
std::string NetworkConfigName(const std::string& job);
// The gang object: one per attempt, since what a provider once said of a group cannot be unsaid.
std::string GroupName(const std::string& job, int64_t attempt);

// The labels of what stands beside the pods, and of a pod.
Json JobLabels(const api::TrainingJob& job);
Json PodLabels(const api::TrainingJob& job, int64_t attempt, int32_t rank);

// {apiVersion, kind, metadata} with name, namespace, labels and the job as the controlling owner.
Json NewObject(const std::string& api_version, const std::string& kind, const std::string& name,
               const api::TrainingJob& job, const std::string& job_uid);

}  // namespace ringmaster::wiring
