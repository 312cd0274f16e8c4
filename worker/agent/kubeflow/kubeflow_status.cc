// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/kubeflow/kubeflow_status.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "rendezvous/unauthenticated.h"

namespace ringmaster::agent {
namespace {

constexpr int kOk = 200;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr int kUnprocessable = 422;
constexpr size_t kMaxMetrics = 256;
constexpr size_t kMaxMetricBytes = 64;  // of a name or a value
constexpr int64_t kMaxPercent = 100;

Error Wrong(const std::string& what) { return {Code::kInvalid, "trainerStatus." + what}; }

// Reads a whole number from 0 to `most`, which may be missing or null.
Status ReadNumber(const Json& object, const char* name, int64_t most, std::optional<int32_t>* out) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return Ok();
  const int64_t value = found->is_number_integer() ? found->get<int64_t>() : -1;
  if (value < 0 || value > most)
    return Wrong(fmt::format("{}: must be a whole number from 0 to {}", name, most));
  *out = static_cast<int32_t>(value);
  return Ok();
}

bool IsMetricText(const Json& metric, const char* name) {
  const auto found = metric.find(name);
  if (found == metric.end() || !found->is_string()) return false;
  const size_t size = found->get_ref<const std::string&>().size();
  return size > 0 && size <= kMaxMetricBytes;
}

Status ReadMetrics(const Json& object, KubeflowStatus* out) {
  const auto found = object.find("metrics");
  if (found == object.end() || found->is_null()) return Ok();
  if (!found->is_array() || found->size() > kMaxMetrics)
    return Wrong(fmt::format("metrics: must be a list of at most {}", kMaxMetrics));
  for (const Json& metric : *found) {
    if (!metric.is_object() || !IsMetricText(metric, "name") || !IsMetricText(metric, "value"))
      return Wrong(fmt::format("metrics: name and value must be texts of 1 to {} bytes", kMaxMetricBytes));
    out->metrics.emplace_back(metric["name"].get<std::string>(), metric["value"].get<std::string>());
  }
  return Ok();
}

bool HasToken(const std::string& authorization, const std::string& token) {
  constexpr std::string_view kScheme = "Bearer ";
  if (token.empty() || authorization.size() < kScheme.size() ||
      ::strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0)
    return false;
  const size_t begin = std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size());
  return rendezvous::SameSecret(authorization.substr(begin), token);
}

const char* ReasonOf(int code) {
  switch (code) {
    case kOk:
      return "OK";
    case kForbidden:
      return "Forbidden";
    case kNotFound:
      return "NotFound";
    case kUnprocessable:
      return "Invalid";
    case 413:
      return "RequestEntityTooLarge";
    default:
      return "BadRequest";
  }
}

// A connection has one request, so that a client never reuses one that is about to be closed.
std::string Response(int code, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      code, ReasonOf(code), body.size(), body);
}

KubeflowAnswer Refusal(int code, const std::string& message) {
  const Json status = {
      {"status", "Failure"}, {"message", message}, {"reason", ReasonOf(code)}, {"code", code}};
  return {Response(code, DumpJson(status)), std::nullopt};
}

}  // namespace

Result<std::optional<KubeflowStatus>> ParseKubeflowStatus(std::string_view body) {
  RM_ASSIGN(const Json json, ParseJson(body));
  if (!json.is_object()) return Error{Code::kInvalid, "must be an object"};
  const auto found = json.find("trainerStatus");
  if (found == json.end() || found->is_null()) return std::optional<KubeflowStatus>();
  if (!found->is_object()) return Error{Code::kInvalid, "trainerStatus: must be an object"};
  KubeflowStatus status;
  RM_TRY(ReadNumber(*found, "progressPercentage", kMaxPercent, &status.percent));
  RM_TRY(ReadNumber(*found, "estimatedRemainingSeconds", std::numeric_limits<int32_t>::max(),
                    &status.seconds_left));
  RM_TRY(ReadMetrics(*found, &status));
  return std::optional<KubeflowStatus>(std::move(status));
}

std::string KubeflowPath(const std::string& job) {
  const size_t slash = std::min(job.find('/'), job.size());
  return fmt::format("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status",
                     job.substr(0, slash), job.substr(std::min(slash + 1, job.size())));
}

KubeflowAnswer AnswerKubeflow(const HttpRequestReader& reader, const std::string& path,
                              const std::string& token) {
  if (reader.error() != 0) return Refusal(reader.error(), "the request cannot be read");
  const HttpRequest& request = reader.request();
  if (request.method != "POST" || request.target != path) return Refusal(kNotFound, "Not found");
  if (!HasToken(request.authorization, token)) return Refusal(kForbidden, "Forbidden");
  Result<std::optional<KubeflowStatus>> status = ParseKubeflowStatus(request.body);
  if (!status.ok()) return Refusal(kUnprocessable, status.error().message);
  return {Response(kOk, request.body), std::move(status).value()};
}

}  // namespace ringmaster::agent
