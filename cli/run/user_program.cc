// SPDX-License-Identifier: Apache-2.0

#include "cli/run/user_program.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "api/launch.h"
#include "base/json.h"

namespace ringmaster::cli {
namespace {

Error Invalid(const std::string& field, const std::string& why) {
  return {Code::kInvalid, fmt::format("{}: {}", field, why)};
}

std::string TextAt(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the index of the container that trains: the one named worker, or the only one.
Result<size_t> FindWorker(const Json& containers, const std::string& place) {
  for (size_t i = 0; i < containers.size(); ++i) {
    if (containers[i].is_object() && TextAt(containers[i], "name") == "worker") return i;
  }
  if (containers.size() == 1 && containers[0].is_object()) return size_t{0};
  return Invalid(place, fmt::format("{} containers, and none is named worker; name the one that trains "
                                    "worker",
                                    containers.size()));
}

// Replaces $(NAME) by the container's variable, as a kubelet does. $$(NAME) stays as $(NAME), and unknown
// names stay as they are.
std::string Expand(std::string_view text, const std::map<std::string, std::string>& variables) {
  std::string out;
  while (!text.empty()) {
    const size_t close = text.find(')');
    if (text.starts_with("$$")) {
      out += '$';
      text.remove_prefix(2);
    } else if (text.starts_with("$(") && close != std::string_view::npos) {
      const auto found = variables.find(std::string(text.substr(2, close - 2)));
      out += found == variables.end() ? std::string(text.substr(0, close + 1)) : found->second;
      text.remove_prefix(close + 1);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

Status ReadVariables(const Json& container, const std::string& place, UserProgram* program) {
  const auto list = container.find("env");
  if (list == container.end() || !list->is_array()) return Ok();
  for (const Json& variable : *list) {
    const std::string name = variable.is_object() ? TextAt(variable, "name") : "";
    if (name.empty()) return Invalid(place + ".env", "each entry needs a name");
    if (variable.contains("valueFrom"))
      return Invalid(fmt::format("{}.env[{}]", place, name),
                     "valueFrom needs a cluster; give a value for `ringmaster run`");
    program->environment[name] = Expand(TextAt(variable, "value"), program->environment);  // those above
  }
  return Ok();
}

// `needs_command`: whether the agent starts it.
Result<UserProgram> ReadProgram(const api::TrainingJob& job, const Json& pod, const std::string& pod_template,
                                bool needs_command) {
  const std::string list_of = pod_template + ".spec.containers";
  const Json* containers = nullptr;
  if (pod.is_object() && pod.contains("spec") && pod["spec"].is_object() &&
      pod["spec"].contains("containers"))
    containers = &pod["spec"]["containers"];
  if (containers == nullptr || !containers->is_array() || containers->empty())
    return Invalid(list_of, "required with framework " + job.spec.framework +
                                "; give the container that trains, with its command");
  RM_ASSIGN(const size_t index, FindWorker(*containers, list_of));
  const Json& container = (*containers)[index];
  const std::string place = fmt::format("{}[{}]", list_of, index);
  UserProgram program;
  RM_TRY(ReadVariables(container, place, &program));
  for (const char* list : {"command", "args"}) {
    const auto words = container.find(list);
    if (words == container.end() || !words->is_array()) continue;
    for (const Json& word : *words) {
      if (!word.is_string()) return Invalid(fmt::format("{}.{}", place, list), "each entry must be a string");
      program.command.push_back(Expand(word.get_ref<const std::string&>(), program.environment));
    }
  }
  const auto command = container.find("command");
  const bool has_command = command != container.end() && command->is_array() && !command->empty();
  if (!has_command && needs_command)
    return Invalid(
        place + ".command",
        "required: the entry point of an image is not known here; give the command that trains, for "
        "example [python, train.py]");
  if (!has_command) program.command.clear();
  std::error_code error;
  program.folder = std::filesystem::current_path(error).string();
  if (error) return Error{Code::kInvalid, "the current folder: " + error.message()};
  return program;
}

}  // namespace

Result<UserPrograms> ReadUserPrograms(const api::TrainingJob& job, std::vector<std::string>* notes) {
  if (job.spec.launch.kind == "none")
    return Invalid(
        "spec.launch.kind",
        "none needs a cluster: `ringmaster run` starts each program under an agent; remove the field");
  UserPrograms programs;
  RM_ASSIGN(programs.workers, ReadProgram(job, job.spec.workers.template_, "spec.workers.template",
                                          api::WorkersNeedCommand(job.spec)));
  notes->push_back(
      "of spec.workers.template only command, args and env apply on one machine: the programs run "
      "in the current folder");
  for (const api::Role& role : job.spec.roles) {
    if (role.template_.is_null()) {
      programs.roles[role.name] = programs.workers;
      continue;
    }
    RM_ASSIGN(programs.roles[role.name],
              ReadProgram(job, role.template_, fmt::format("spec.roles[{}].template", role.name), true));
  }
  return programs;
}

}  // namespace ringmaster::cli
