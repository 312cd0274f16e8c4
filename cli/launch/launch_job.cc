// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/launch_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "api/launchers.h"
#include "cli/launch/code_archive.h"

namespace ringmaster::cli::launch {
namespace {

constexpr const char* kArchiveVolume = "code-archive";
constexpr const char* kCodeVolume = "code";
constexpr const char* kArchiveFolder = "/ringmaster-code";
constexpr int kMostWorkers = 4096;

std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMostWorkers)
    return {};
  return value;
}

// A kubelet replaces $(NAME) in a command; $$ stands for one dollar.
std::string Literal(std::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    text += word[i];
    if (word[i] == '$' && (i + 1 < word.size() && (word[i + 1] == '(' || word[i + 1] == '$'))) text += '$';
  }
  return text;
}

bool IsTorchrun(const LaunchRequest& request) {
  const auto launchers = api::FindLaunchersIn(request.command);
  return std::any_of(launchers.begin(), launchers.end(),
                     [](const api::LauncherCall& call) { return call.kind == api::LauncherKind::kTorchrun; });
}

// Unpacks the code with the tar of the user's image. Meets the Pod Security level "baseline" and, if the
// image names a user other than root, "restricted".
Json UnpackContainer(const LaunchRequest& request) {
  const Json resources = {{"cpu", "100m"}, {"memory", "64Mi"}};
  Json container = {
      {"name", "code"},
      {"command", {"tar", "-xzof", fmt::format("{}/{}", kArchiveFolder, kArchiveKey), "-C", kWorkspace}},
      {"terminationMessagePolicy", "FallbackToLogsOnError"},
      {"resources", {{"limits", resources}, {"requests", resources}}},
      {"securityContext",
       {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", Json::array({"ALL"})}}}}},
      {"volumeMounts", Json::array({{{"name", kArchiveVolume}, {"mountPath", kArchiveFolder}},
                                    {{"name", kCodeVolume}, {"mountPath", kWorkspace}}})}};
  if (!request.image.empty()) container["image"] = request.image;
  return container;
}

void AddCode(const LaunchRequest& request, Json& pod, Json& worker) {
  pod["initContainers"] = Json::array({UnpackContainer(request)});
  pod["volumes"] = Json::array({{{"name", kArchiveVolume}, {"configMap", {{"name", request.code}}}},
                                {{"name", kCodeVolume}, {"emptyDir", Json::object()}}});
  worker["workingDir"] = kWorkspace;
  worker["volumeMounts"] = Json::array({{{"name", kCodeVolume}, {"mountPath", kWorkspace}}});
}

Json Resources(const LaunchRequest& request) {
  Json resources = Json::object();
  if (request.gpus > 0) resources["limits"]["nvidia.com/gpu"] = request.gpus;
  if (!request.cpus.empty()) resources["requests"]["cpu"] = request.cpus;
  if (!request.memory.empty()) {
    resources["requests"]["memory"] = request.memory;
    resources["limits"]["memory"] = request.memory;
  }
  return resources;
}

// Frameworks whose program uses all GPUs of its worker.
bool OneProcess(const Training& training) {
  return training.kind == "ranks" && (training.framework == "jax" || training.framework == "tensorflow");
}

}  // namespace

Status ReadWorkers(const std::string& text, LaunchRequest* request) {
  const size_t colon = text.find(':');
  const std::optional<int> first = Number(std::string_view(text).substr(0, colon));
  const std::optional<int> last =
      colon == text.npos ? first : Number(std::string_view(text).substr(colon + 1));
  if (!first || !last || *first > *last)
    return Error{Code::kInvalid, fmt::format("--workers {}: give a number from 1 to {}, or MIN:MAX as 4:8",
                                             text, kMostWorkers)};
  request->workers = *last;
  if (colon != text.npos) request->min = *first;
  return Ok();
}

Json LaunchJob(const LaunchRequest& request) {
  Json worker = {{"name", "worker"}};
  for (const std::string& word : request.command) worker["command"].push_back(Literal(word));
  if (!request.image.empty()) worker["image"] = request.image;
  if (Json resources = Resources(request); !resources.empty()) worker["resources"] = std::move(resources);
  Json pod = Json::object();
  if (!request.runtime.empty()) pod["runtimeClassName"] = request.runtime;
  if (!request.code.empty()) AddCode(request, pod, worker);

  Json workers = {{"replicas", request.workers}};
  if (request.min > 0) {
    workers["min"] = request.min;
    workers["max"] = request.workers;
  }
  std::string processes = request.processes;
  if (processes.empty() && request.gpus > 1 && !OneProcess(request.training)) processes = "gpu";
  if (!processes.empty() && IsTorchrun(request)) {
    // torchrun starts the ranks of a worker itself.
    const std::string count = processes == "gpu" ? std::to_string(std::max(1, request.gpus)) : processes;
    worker["env"] = Json::array({{{"name", "PET_NPROC_PER_NODE"}, {"value", count}}});
  } else if (!processes.empty() && processes != "1") {
    workers["slots"] = processes;
  }
  pod["containers"] = Json::array({std::move(worker)});
  workers["template"]["spec"] = std::move(pod);

  Json spec = {{"framework", request.training.framework}, {"workers", std::move(workers)}};
  if (request.training.kind != "ranks") spec["launch"]["kind"] = request.training.kind;
  if (request.max_restarts) spec["restart"]["maxRestarts"] = *request.max_restarts;
  return {{"apiVersion", "ringmaster.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"name", request.name}}},
          {"spec", std::move(spec)}};
}

}  // namespace ringmaster::cli::launch
