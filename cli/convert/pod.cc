// SPDX-License-Identifier: Apache-2.0

// The pod template of a job: the container that trains, its command, its processes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "api/pod_template.h"
#include "api/slots.h"
#include "cli/convert/convert.h"
#include "cli/convert/names.h"
#include "cli/convert/torchrun.h"

namespace ringmaster::cli::convert {
namespace {

constexpr const char* kWorker = "worker";
constexpr const char* kProcessesVariable = "PET_NPROC_PER_NODE";

bool IsNumber(const std::string& text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

std::vector<std::string> Words(const Json& container, const char* member) {
  std::vector<std::string> words;
  for (const Json& word : json::Items(container, member)) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
  return words;
}

bool RequestsGpus(const Json& pod_template) {
  api::Workers workers;
  workers.template_ = pod_template;
  return api::RequestsGpus(workers);
}

// Returns the container that trains. With several, it is named `worker`, which distinguishes it for sure.
Json* NameWorker(Source& source, const TemplatePlace& place, Json& pod_template) {
  const Json* containers = api::MemberOf(api::MemberOf(&pod_template, "spec"), "containers");
  if (containers == nullptr || !containers->is_array() || containers->empty()) return nullptr;
  Json& list = pod_template["spec"]["containers"];
  Json* worker = &list.front();
  for (Json& container : list) {
    if (json::Text(container, "name") == place.container) worker = &container;
  }
  if (!worker->is_object()) return nullptr;
  if (list.size() > 1 && json::Text(*worker, "name") != kWorker) {
    source.Note(place.path + ".spec.containers",
                fmt::format("the container \"{}\" trains and is now named {}, so that the operator finds it",
                            json::Text(*worker, "name"), kWorker));
    (*worker)["name"] = kWorker;
  }
  return worker;
}

void SetVariable(Json& container, const char* name, const std::string& value) {
  Json& list = container["env"];
  if (!list.is_array()) list = Json::array();
  for (const Json& variable : list) {
    if (json::Text(variable, "name") == name) return;  // the user's wins
  }
  list.push_back({{"name", name}, {"value", value}});
}

// The processes that torchrun starts in each pod.
std::string ProcessesOfTorchrun(Source& source, const std::string& path, const std::string& given,
                                bool gpus) {
  if (!given.empty() && given != "auto") return given;
  if (gpus) return "gpu";
  source.Note(path,
              fmt::format("torchrun starts one process in each pod, because the pods request no GPU; set "
                          "the variable {} for more",
                          kProcessesVariable));
  return "1";
}

}  // namespace

Json* PrepareTemplate(Source& source, const TemplatePlace& place, Json& pod_template) {
  AdaptLabels(source, place.path, pod_template);
  if (Json* pod =
          pod_template.contains("spec") && pod_template["spec"].is_object() ? &pod_template["spec"] : nullptr;
      pod != nullptr && pod->contains("restartPolicy")) {
    source.Note(place.path + ".spec.restartPolicy", "was left out: spec.restart decides about restarts");
    pod->erase("restartPolicy");
  }
  Json* worker = NameWorker(source, place, pod_template);
  if (worker == nullptr)
    source.Refuse(place.path, "must have spec.containers with the container that trains");
  return worker;
}

void UseTemplate(Source& source, const TemplatePlace& place, Json pod_template, const std::string& processes,
                 const std::string& processes_path, Json& job) {
  Json& spec = job["spec"];
  Json* worker = PrepareTemplate(source, place, pod_template);
  if (worker == nullptr) return;
  std::vector<std::string> command = Words(*worker, "command");
  const bool pytorch = spec["framework"] == "pytorch";
  if (command.empty()) {
    spec["launch"] = {{"kind", "none"}};
    source.Note(
        place.command_path,
        "there is no command, so the image's ENTRYPOINT runs without an agent (launch.kind none), and a "
        "failure replaces all pods; set command and remove launch to restart ranks in their pods");
    if (pytorch && IsNumber(processes)) spec["workers"]["slots"] = processes;
  } else if (pytorch) {
    for (std::string& word : Words(*worker, "args")) command.push_back(std::move(word));
    Torchrun torchrun = ReadTorchrun(command);
    if (!torchrun.removed.empty()) {
      source.Note(place.command_path,
                  fmt::format("removed {} from torchrun: the agent sets them for each start of the gang",
                              fmt::join(torchrun.removed, " ")));
      (*worker)["command"] = torchrun.command;
      worker->erase("args");
    } else if (torchrun.in_shell) {
      source.Note(
          place.command_path,
          "torchrun runs in a shell: remove --nnodes, --node-rank, --rdzv-* and --master-*, if it has them; "
          "the agent sets them for each start of the gang");
    }
    const bool runs = torchrun.found || torchrun.in_shell;
    if (runs && !torchrun.sets_processes) {
      const std::string number =
          ProcessesOfTorchrun(source, processes_path, processes, RequestsGpus(pod_template));
      if (torchrun.needs_option) {
        torchrun.command.insert(torchrun.command.begin() + static_cast<std::ptrdiff_t>(torchrun.options),
                                "--nproc_per_node=" + number);
        (*worker)["command"] = torchrun.command;
        worker->erase("args");
      } else {
        SetVariable(*worker, kProcessesVariable, number);
      }
    } else if (!runs && IsNumber(processes) && processes != "1") {
      source.Note(processes_path,
                  fmt::format("the command is not torchrun, so one process starts in each pod; with "
                              "spec.workers.slots: {} the agent starts {} ranks",
                              processes, processes));
    }
  }
  AdaptVariables(source, place.command_path, spec["framework"].get<std::string>(), !command.empty(), *worker);
  spec["workers"]["template"] = std::move(pod_template);
}

}  // namespace ringmaster::cli::convert
