// SPDX-License-Identifier: Apache-2.0

// The reports of progress that a program sends to Kubeflow Trainer (KEP-2779, TrainJob progress), so that the
// agent can take them in its place. A report is a POST to the status of a TrainJob, with a bearer token:
//
//   {"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds": 120,
//                      "metrics": [{"name": "loss", "value": "0.23"}], "lastUpdatedTime": "..."}}
//
// What Trainer refuses is refused with the same status. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "worker/agent/net/http_request.h"

namespace ringmaster::agent {

struct KubeflowStatus {
  std::optional<int32_t> percent;       // 0 to 100
  std::optional<int32_t> seconds_left;  // not negative
  std::vector<std::pair<std::string, std::string>> metrics;
  bool operator==(const KubeflowStatus&) const = default;
};

// Reads the body of a report; nullopt: it is empty. Errors: kInvalid.
Result<std::optional<KubeflowStatus>> ParseKubeflowStatus(std::string_view body);

// Returns the path of a job's status. `job`: namespace/name.
std::string KubeflowPath(const std::string& job);

struct KubeflowAnswer {
  std::string text;  // of the response
  std::optional<KubeflowStatus> status;
};

// Answers a request that is done. Only reports to `path` with `token` have a status.
KubeflowAnswer AnswerKubeflow(const HttpRequestReader& reader, const std::string& path,
                              const std::string& token);

}  // namespace ringmaster::agent
