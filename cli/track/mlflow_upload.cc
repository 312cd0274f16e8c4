// SPDX-License-Identifier: Apache-2.0

#include "cli/track/mlflow_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

namespace ringmaster::cli {
namespace {

// Limits of the server: a batch has at most 1000 metrics, parameters and tags, of those at most 100
// parameters.
constexpr size_t kMaxItems = 1000;
constexpr size_t kMetricsPerStep = 5;
constexpr size_t kMetricsPerValidation = 2;
constexpr size_t kMaxTags = 20;  // those of a job and of its end are fewer
constexpr size_t kMaxParameters = 100;
constexpr size_t kMaxValue = 500;  // bytes of a value that servers of every version accept

// Protobuf's JSON has names for what JSON's numbers lack.
Json Value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

void AddMetric(Json& metrics, const char* key, double value, int64_t at_ms, int64_t step) {
  metrics.push_back({{"key", key}, {"value", Value(value)}, {"timestamp", at_ms}, {"step", step}});
}

std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

// Cuts a long value between two characters.
std::string Short(const std::string& value) {
  size_t size = std::min(value.size(), kMaxValue);
  while (size > 0 && size < value.size() && (static_cast<unsigned char>(value[size]) & 0xc0) == 0x80) --size;
  return value.substr(0, size);
}

Json Pairs(std::span<const std::pair<std::string, std::string>> pairs) {
  Json list = Json::array();
  for (const auto& [key, value] : pairs) list.push_back({{"key", key}, {"value", Short(value)}});
  return list;
}

void Flatten(const Json& json, const std::string& name,
             std::vector<std::pair<std::string, std::string>>* out) {
  if (json.is_object()) {
    for (const auto& [key, child] : json.items()) Flatten(child, name.empty() ? key : name + "." + key, out);
  } else if (json.is_string()) {
    if (!json.get_ref<const std::string&>().empty()) out->emplace_back(name, json.get<std::string>());
  } else if (!json.is_null() && !json.empty()) {
    out->emplace_back(name, DumpJson(json));
  }
}

}  // namespace

Json ToJson(const MlflowSaved& saved) {
  return {{"server", saved.server},
          {"experimentId", saved.experiment_id},
          {"runId", saved.run_id},
          {"startedMs", saved.started_ms},
          {"step", saved.step},
          {"seconds", saved.seconds},
          {"validatedStep", saved.validated_step},
          {"described", saved.described}};
}

Result<MlflowSaved> MlflowSavedFrom(const Json& json) {
  MlflowSaved saved;
  RM_ASSIGN(saved.server, JsonString(json, "server"));
  RM_ASSIGN(saved.experiment_id, JsonString(json, "experimentId"));
  RM_ASSIGN(saved.run_id, JsonString(json, "runId"));
  RM_ASSIGN(saved.started_ms, JsonInt(json, "startedMs"));
  RM_ASSIGN(saved.step, JsonInt(json, "step"));
  RM_ASSIGN(saved.seconds, JsonDouble(json, "seconds"));
  RM_ASSIGN(saved.validated_step, JsonInt(json, "validatedStep"));
  RM_ASSIGN(saved.described, JsonBool(json, "described"));
  return saved;
}

MlflowUpload::MlflowUpload(MlflowJob job, MlflowSaved saved)
    : job_(std::move(job)),
      saved_(std::move(saved)),
      reopened_(saved_.run_id.empty()),
      compared_(saved_.run_id.empty()) {}

void MlflowUpload::Add(const rendezvous::StepRecord& record) {
  if (record.step > saved_.step) steps_.push_back(record);
}

void MlflowUpload::Add(const rendezvous::ValidationResult& result) {
  const int64_t known = validations_.empty() ? saved_.validated_step : validations_.back().step;
  if (result.step > known) validations_.push_back(result);
}

void MlflowUpload::StepsBeginAgain() {
  steps_.clear();
  compared_ = saved_.run_id.empty();
}

std::optional<MlflowUpload::Request> MlflowUpload::Next() {
  stage_ = Stage::kNone;
  if (given_up_ || ended_) return std::nullopt;
  if (saved_.experiment_id.empty()) {
    stage_ = experiment_missing_ ? Stage::kCreateExperiment : Stage::kFindExperiment;
    if (experiment_missing_) return Request{"experiments/create", {{"name", job_.experiment}}};
    return Request{"experiments/get-by-name?experiment_name=" + PercentEncoded(job_.experiment), {}};
  }
  if (saved_.run_id.empty()) {
    stage_ = Stage::kCreateRun;
    return Request{"runs/create",
                   {{"experiment_id", saved_.experiment_id},
                    {"run_name", job_.run_name},
                    {"start_time", saved_.started_ms}}};
  }
  if (!reopened_) {
    stage_ = Stage::kReopen;
    return Request{"runs/update", {{"run_id", saved_.run_id}, {"status", "RUNNING"}}};
  }
  if (!compared_) {
    stage_ = Stage::kCompare;
    return Request{"runs/get?run_id=" + PercentEncoded(saved_.run_id), {}};
  }
  if (!saved_.described) return DescriptionRequest();
  if (!steps_.empty() || !validations_.empty() || (end_ && !end_tagged_)) return BatchRequest();
  if (!end_) return std::nullopt;
  stage_ = Stage::kEnd;
  return Request{"runs/update",
                 {{"run_id", saved_.run_id}, {"status", end_->status}, {"end_time", end_->ended_ms}}};
}

// The tags come with the last parameters. A process that ends before that sends all of them again, which
// changes nothing.
MlflowUpload::Request MlflowUpload::DescriptionRequest() {
  stage_ = Stage::kBatch;
  after_ = saved_;
  steps_sent_ = validations_sent_ = 0;
  tags_of_end_sent_ = false;
  const auto parameters = std::span(job_.parameters).subspan(parameters_sent_);
  parameters_in_flight_ = std::min(parameters.size(), kMaxParameters);
  after_.described = parameters_in_flight_ == parameters.size();
  Json body = {{"run_id", saved_.run_id}, {"params", Pairs(parameters.first(parameters_in_flight_))}};
  if (after_.described) body["tags"] = Pairs(job_.tags);
  return {"runs/log-batch", std::move(body)};
}

std::vector<std::string> MlflowUpload::Shortened() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : job_.parameters)
    if (value.size() > kMaxValue) names.push_back(key);
  return names;
}

MlflowUpload::Request MlflowUpload::BatchRequest() {
  stage_ = Stage::kBatch;
  after_ = saved_;
  steps_sent_ = validations_sent_ = parameters_in_flight_ = 0;
  Json metrics = Json::array();
  const auto now_ms = [&] { return after_.started_ms + static_cast<int64_t>(after_.seconds * 1000); };
  while (steps_sent_ < steps_.size() &&
         metrics.size() + kMetricsPerStep + kMetricsPerValidation + kMaxTags <= kMaxItems) {
    const rendezvous::StepRecord& record = steps_[steps_sent_++];
    after_.step = record.step;
    after_.seconds += std::isfinite(record.seconds) ? record.seconds : 0;
    AddMetric(metrics, "train/loss", record.loss, now_ms(), record.step);
    AddMetric(metrics, "train/learning_rate", record.learning_rate, now_ms(), record.step);
    AddMetric(metrics, "train/gradient_norm", record.gradient_norm, now_ms(), record.step);
    AddMetric(metrics, "gang/workers", record.workers, now_ms(), record.step);
    if (record.seconds > 0)
      AddMetric(metrics, "train/samples_per_second", static_cast<double>(record.samples) / record.seconds,
                now_ms(), record.step);
  }
  if (!validations_.empty()) {
    const rendezvous::ValidationResult& result = validations_.front();
    validations_sent_ = 1;
    after_.validated_step = result.step;
    // A time that is a function of the step only (M2): steps and validations are in different batches after a
    // restart.
    const int64_t at_ms = saved_.started_ms + result.step;
    AddMetric(metrics, "validation/loss", result.loss, at_ms, result.step);
    if (result.accuracy) AddMetric(metrics, "validation/accuracy", *result.accuracy, at_ms, result.step);
  }
  Json body = {{"run_id", saved_.run_id}, {"metrics", std::move(metrics)}};
  tags_of_end_sent_ = end_ && !end_tagged_;
  if (tags_of_end_sent_) body["tags"] = Pairs(end_->tags);
  return {"runs/log-batch", std::move(body)};
}

// `metrics`: the newest value of each metric. A batch is stored as a whole, so the loss stands for all values
// of a step.
void MlflowUpload::CompareWith(const Json& metrics) {
  for (const Json& metric : metrics) {
    const int64_t step = json::Integer(metric, "step");
    if (json::Text(metric, "key") == "train/loss" && step > saved_.step) {
      saved_.step = step;
      saved_.seconds = static_cast<double>(json::Integer(metric, "timestamp") - saved_.started_ms) / 1000;
    }
    if (json::Text(metric, "key") == "validation/loss")
      saved_.validated_step = std::max(saved_.validated_step, step);
  }
  std::erase_if(steps_, [&](const rendezvous::StepRecord& record) { return record.step <= saved_.step; });
  std::erase_if(validations_, [&](const rendezvous::ValidationResult& result) {
    return result.step <= saved_.validated_step;
  });
}

Status MlflowUpload::OnResponse(int status, const std::string& body) {
  const auto json = ParseJson(body);
  const auto failed = [&] {
    const std::string message = json.ok() ? std::string(json::Text(*json, "message")) : std::string();
    return fmt::format("HTTP {}{}{}", status, message.empty() ? "" : ": ", message.substr(0, 300));
  };
  if (status == 408 || status == 429 || status >= 500) return Error{Code::kUnavailable, failed()};
  if (stage_ == Stage::kFindExperiment && status == 404) {
    experiment_missing_ = true;
    return Ok();
  }
  if (stage_ == Stage::kCreateExperiment && status == 400 &&
      (!json.ok() || json::Text(*json, "error_code") == "RESOURCE_ALREADY_EXISTS")) {
    experiment_missing_ = false;  // another run has just created it
    return Ok();
  }
  if (status / 100 != 2) {
    given_up_ = true;
    return Error{status == 401 || status == 403 ? Code::kForbidden : Code::kInvalid, failed()};
  }
  const auto missing = [&](const char* what) {
    given_up_ = true;
    return Error{Code::kInvalid, fmt::format("the response has no {}: not an MLflow server", what)};
  };
  switch (stage_) {
    case Stage::kNone:
      break;
    case Stage::kFindExperiment:
      if (json.ok()) saved_.experiment_id = json::Text(json::Child(*json, "experiment"), "experiment_id");
      if (saved_.experiment_id.empty()) return missing("experiment");
      break;
    case Stage::kCreateExperiment:
      if (json.ok()) saved_.experiment_id = json::Text(*json, "experiment_id");
      if (saved_.experiment_id.empty()) return missing("experiment_id");
      break;
    case Stage::kCreateRun:
      if (json.ok()) saved_.run_id = json::Text(json::Child(json::Child(*json, "run"), "info"), "run_id");
      if (saved_.run_id.empty()) return missing("run");
      break;
    case Stage::kReopen:
      reopened_ = true;
      break;
    case Stage::kCompare:
      if (!json.ok()) return missing("run");
      CompareWith(json::Items(json::Child(json::Child(*json, "run"), "data"), "metrics"));
      compared_ = true;
      break;
    case Stage::kBatch:
      saved_ = after_;
      parameters_sent_ += parameters_in_flight_;
      steps_.erase(steps_.begin(), steps_.begin() + static_cast<ptrdiff_t>(steps_sent_));
      validations_.erase(validations_.begin(),
                         validations_.begin() + static_cast<ptrdiff_t>(validations_sent_));
      if (tags_of_end_sent_) end_tagged_ = true;
      break;
    case Stage::kEnd:
      ended_ = true;
      break;
  }
  stage_ = Stage::kNone;
  return Ok();
}

std::vector<std::pair<std::string, std::string>> FlattenParameters(const Json& json) {
  std::vector<std::pair<std::string, std::string>> parameters;
  Flatten(json, {}, &parameters);
  return parameters;
}

}  // namespace ringmaster::cli
