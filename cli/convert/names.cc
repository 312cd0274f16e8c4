// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace ringmaster::cli::convert {
namespace {

// ---- variables

struct Variable {
  const char* framework;    // empty: all
  const char* name;         // in a container of the other operator
  const char* replacement;  // in a shell that the agent starts; empty: there is none
};
// Of PyTorchJob, TFJob, JAXJob, MPIJob, TrainJob, and of Kubernetes for the Jobs of a TrainJob.
constexpr std::array<Variable, 29> kVariables = {{
    {"pytorch", "MASTER_ADDR", "MASTER_ADDR"},
    {"pytorch", "MASTER_PORT", "MASTER_PORT"},
    {"pytorch", "RANK", "RANK"},
    {"pytorch", "WORLD_SIZE", "WORLD_SIZE"},
    {"pytorch", "PET_NNODES", "PET_NNODES"},
    {"pytorch", "PET_NODE_RANK", "PET_NODE_RANK"},
    {"pytorch", "PET_MASTER_ADDR", "PET_MASTER_ADDR"},
    {"pytorch", "PET_MASTER_PORT", "PET_MASTER_PORT"},
    {"pytorch", "PET_RDZV_ID", "PET_RDZV_ID"},
    {"pytorch", "PET_MAX_RESTARTS", "PET_MAX_RESTARTS"},
    {"pytorch", "PET_RDZV_BACKEND", ""},
    {"pytorch", "PET_RDZV_ENDPOINT", ""},
    {"pytorch", "PET_RDZV_CONF", ""},
    {"pytorch", "PET_STANDALONE", ""},
    {"pytorch", "JOB_COMPLETION_INDEX", "PET_NODE_RANK"},
    {"tensorflow", "TF_CONFIG", "TF_CONFIG"},
    {"jax", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS"},
    {"jax", "JAX_NUM_PROCESSES", "JAX_NUM_PROCESSES"},
    {"jax", "JAX_PROCESS_ID", "JAX_PROCESS_ID"},
    {"jax", "COORDINATOR_ADDRESS", "JAX_COORDINATOR_ADDRESS%:*"},
    {"jax", "COORDINATOR_PORT", "JAX_COORDINATOR_ADDRESS##*:"},
    {"jax", "NUM_PROCESSES", "JAX_NUM_PROCESSES"},
    {"jax", "PROCESS_ID", "JAX_PROCESS_ID"},
    {"jax", "JOB_COMPLETION_INDEX", "JAX_PROCESS_ID"},
    {"custom", "JOB_COMPLETION_INDEX", "RINGMASTER_RANK"},
    {"mpi", "JOB_COMPLETION_INDEX", ""},
    {"", "K_MPI_JOB_ROLE", ""},
    {"", "OMPI_MCA_orte_default_hostfile", ""},
    {"", "OMPI_MCA_orte_keep_fqdn_hostnames", ""},
}};

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool IsName(std::string_view text) { return std::all_of(text.begin(), text.end(), IsNameCharacter); }

// Whether a script is within single quotes after this text, where a shell replaces nothing.
bool EndsInSingleQuotes(std::string_view script) {
  char quote = 0;
  for (size_t i = 0; i < script.size(); ++i) {
    const char c = script[i];
    if (c == '\\' && quote != '\'') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    }
  }
  return quote == '\'';
}

// A part of a word: $(name), or text.
struct Part {
  std::string name;  // empty: text
  std::string text;
};

// Splits a word as Kubernetes does. $$(NAME) is text.
std::vector<Part> PartsOf(const std::string& word) {
  std::vector<Part> parts(1);
  for (size_t i = 0; i < word.size();) {
    const size_t close = word.compare(i, 2, "$(") == 0 ? word.find(')', i) : word.npos;
    if (word.compare(i, 2, "$$") == 0) {
      parts.back().text += "$$";
      i += 2;
    } else if (close != word.npos) {
      parts.push_back({word.substr(i + 2, close - i - 2), word.substr(i, close + 1 - i)});
      parts.emplace_back();
      i = close + 1;
    } else {
      parts.back().text += word[i++];
    }
  }
  return parts;
}

class VariableAdapter {
 public:
  VariableAdapter(Source& source, const std::string& path, const std::string& framework, bool agent,
                  Json& container)
      : source_(source), path_(path), framework_(framework), agent_(agent), container_(container) {}

  void Adapt() {
    for (const Json& variable : json::Items(container_, "env")) own_.emplace(json::Text(variable, "name"));
    Environment();
    if (Json* script = Script()) return InShell(*script);
    const bool in_command = Reads("command"), in_arguments = Reads("args");
    if (!missing_.empty()) ReportMissing();
    if (!in_command && !in_arguments) return;
    if (agent_) {
      UseShell();
    } else if (!renamed_.empty()) {
      Rename();
    }
  }

 private:
  // Returns the variable of the other operator; null: the program's, or of no operator.
  const Variable* Find(std::string_view name) const {
    if (own_.contains(std::string(name))) return nullptr;
    for (const Variable& variable : kVariables) {
      const bool of_framework = *variable.framework == 0 || variable.framework == framework_;
      if (variable.name == name && of_framework) return &variable;
    }
    return nullptr;
  }

  static std::string Reference(std::string_view name) { return fmt::format("$({})", name); }

  // Without an agent the container has the variables that replace those of the other operator, and Kubernetes
  // reads them.
  void Rename() {
    for (const char* member : {"command", "args"}) {
      if (!container_.contains(member)) continue;
      for (Json& word : container_[member]) {
        if (!word.is_string()) continue;
        std::string text;
        for (const Part& part : PartsOf(word.get<std::string>())) {
          const Variable* variable = part.name.empty() ? nullptr : Find(part.name);
          text += variable != nullptr && *variable->replacement != 0 && IsName(variable->replacement)
                      ? Reference(variable->replacement)
                      : part.text;
        }
        word = text;
      }
    }
    source_.Note(
        path_, fmt::format("renamed {}: a TrainingJob has other names for them", fmt::join(renamed_, ", ")));
  }

  void Environment() {
    if (!container_.contains("env") || !container_["env"].is_array()) return;
    for (const Json& variable : container_["env"]) {
      for (const Part& part : PartsOf(std::string(json::Text(variable, "value")))) {
        if (part.name.empty() || Find(part.name) == nullptr) continue;
        source_.Note(path_,
                     fmt::format("the variable {} gets the text {}, since {} is no variable of the container "
                                 "here: set it in the command, in a shell",
                                 json::Text(variable, "name"), part.text, part.name));
      }
    }
  }

  // Returns the script of a shell's command line.
  Json* Script() {
    const Json& command = json::Items(container_, "command");
    if (command.empty() || !command.front().is_string()) return nullptr;
    const auto shell = command.front().get<std::string>();
    const std::string base = shell.substr(shell.rfind('/') + 1);
    if (base != "sh" && base != "bash" && base != "dash" && base != "zsh") return nullptr;
    bool option = false;
    for (const char* member : {"command", "args"}) {
      if (!container_.contains(member) || !container_[member].is_array()) continue;
      for (Json& word : container_[member]) {
        if (!word.is_string()) return nullptr;
        const auto& text = word.get_ref<const std::string&>();
        if (option) return &word;
        option = text.size() > 1 && text[0] == '-' && text[1] != '-' && text.back() == 'c';
      }
    }
    return nullptr;
  }

  // Whether a word needs a variable that only the agent sets.
  bool Reads(const char* member) {
    bool found = false;
    for (const Json& word : json::Items(container_, member)) {
      if (!word.is_string()) continue;
      for (const Part& part : PartsOf(word.get<std::string>())) {
        const Variable* variable = part.name.empty() ? nullptr : Find(part.name);
        if (variable == nullptr) continue;
        found = Count(*variable) || found;
      }
    }
    return found;
  }

  // Returns whether the variable has a counterpart.
  bool Count(const Variable& variable) {
    // Kubernetes cannot take a value apart, and without an agent no program counts its ranks.
    const bool known =
        agent_ || (IsName(variable.replacement) && variable.framework != std::string_view("custom"));
    if (*variable.replacement == 0 || !known) {
      missing_.insert(variable.name);
      return false;
    }
    names_.insert(variable.name);
    replacements_.insert(fmt::format("${{{}}}", variable.replacement));
    if (std::string_view(variable.name) != variable.replacement) renamed_.insert(variable.name);
    return true;
  }

  void ReportMissing() {
    source_.Note(path_, fmt::format("the command reads {}, which a TrainingJob does not set: remove it",
                                    fmt::join(missing_, ", ")));
  }

  void InShell(Json& script) {
    std::string text;
    for (const Part& part : PartsOf(script.get<std::string>())) {
      const Variable* variable = part.name.empty() ? nullptr : Find(part.name);
      const bool known = variable != nullptr && Count(*variable);
      if (!known || !agent_) {
        text += part.text;
      } else if (EndsInSingleQuotes(text)) {
        text += fmt::format("'\"${{{}}}\"'", variable->replacement);
      } else {
        text += fmt::format("${{{}}}", variable->replacement);
      }
    }
    if (text != script.get_ref<const std::string&>()) NoteShell("in the script");
    text = RenameInScript(text);
    script = text;
    if (!missing_.empty()) ReportMissing();
  }

  // Replaces $NAME and ${NAME} where the agent has another name.
  std::string RenameInScript(const std::string& script) {
    std::string text;
    for (size_t i = 0; i < script.size();) {
      const bool braces = script.compare(i, 2, "${") == 0;
      const size_t begin = i + (braces ? 2 : 1);
      size_t end = begin;
      while (script[i] == '$' && end < script.size() && IsNameCharacter(script[end])) ++end;
      const Variable* variable =
          end > begin ? Find(std::string_view(script).substr(begin, end - begin)) : nullptr;
      if (variable == nullptr || std::string_view(variable->name) == variable->replacement) {
        text += script[i++];
        continue;
      }
      const bool whole = !braces || (end < script.size() && script[end] == '}');
      if (*variable->replacement == 0 || !whole) {
        if (*variable->replacement == 0) {
          missing_.insert(variable->name);
        } else {
          source_.Note(path_,
                       fmt::format("the script reads {}, which a TrainingJob does not set: write ${{{}}}",
                                   variable->name, variable->replacement));
        }
        text += script.substr(i, end - i);
        i = end;
        continue;
      }
      source_.Note(path_, fmt::format("${} in the script is now ${{{}}}, which the agent sets",
                                      variable->name, variable->replacement));
      text += fmt::format("${{{}}}", variable->replacement);
      i = end + (braces ? 1 : 0);
    }
    return text;
  }

  // Runs the words in a shell, which replaces the variables.
  void UseShell() {
    std::string line = "exec";
    for (const char* member : {"command", "args"}) {
      for (const Json& word : json::Items(container_, member)) {
        if (word.is_string()) line += " " + Quoted(word.get<std::string>());
      }
    }
    container_["command"] = Json::array({"/bin/sh", "-c", line});
    container_.erase("args");
    NoteShell("of a shell that now runs the command");
  }

  void NoteShell(const char* where) {
    std::vector<std::string> references;
    for (const std::string& name : names_) references.push_back(Reference(name));
    source_.Note(
        path_,
        fmt::format("{} became {} {}: the agent sets what Kubernetes cannot know when it creates the pod",
                    fmt::join(references, ", "), fmt::join(replacements_, ", "), where));
  }

  // Returns the word for a shell's command line. Kubernetes still replaces $(NAME) and $$ in it.
  std::string Quoted(const std::string& word) const {
    std::vector<Part> parts = PartsOf(word);
    const bool reads =
        std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return !ReadBy(part).empty(); });
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return IsNameCharacter(c) || std::string_view("-./:=,@%+").find(c) != std::string_view::npos;
    });
    if (plain) return word;
    std::string text;
    for (const Part& part : parts) {
      if (const std::string variable = ReadBy(part); !variable.empty()) {
        text += fmt::format("${{{}}}", variable);
        continue;
      }
      for (size_t i = 0; i < part.text.size(); ++i) {
        const char c = part.text[i];
        if (!reads && c == '\'') {
          text += "'\\''";
          continue;
        }
        if (reads && (c == '"' || c == '\\' || c == '`' || (c == '$' && (i == 0 || part.text[i - 1] != '$'))))
          text += '\\';
        text += c;
      }
    }
    return reads ? "\"" + text + "\"" : "'" + text + "'";
  }

  // Returns the variable that the shell reads for a part; empty: the part is text.
  std::string ReadBy(const Part& part) const {
    if (part.name.empty()) return {};
    if (own_.contains(part.name)) return part.name;
    if (const Variable* variable = Find(part.name)) return variable->replacement;
    const bool of_service = part.name.ends_with("_SERVICE_HOST") || part.name.ends_with("_SERVICE_PORT");
    return of_service || container_.contains("envFrom") ? part.name : std::string();
  }

  Source& source_;
  const std::string& path_;
  const std::string& framework_;
  const bool agent_;
  Json& container_;
  std::set<std::string> own_;           // variables of the container
  std::set<std::string> names_;         // of the other operator, with a counterpart
  std::set<std::string> renamed_;       // of these, those whose counterpart has another name
  std::set<std::string> replacements_;  // as a shell reads them
  std::set<std::string> missing_;
};

// ---- labels

constexpr const char* kJobLabel = "ringmaster.dev/job";
constexpr const char* kRankLabel = "ringmaster.dev/rank";

constexpr std::array<std::string_view, 4> kPrefixes = {"training.kubeflow.org/", "trainer.kubeflow.org/",
                                                       "jobset.sigs.k8s.io/", "batch.kubernetes.io/"};
// Labels of releases that had no prefix.
constexpr std::array<std::string_view, 14> kOlder = {
    "group-name",       "job-name",     "replica-type",         "replica-index",         "job-role",
    "pytorch-job-name", "tf-job-name",  "pytorch-replica-type", "pytorch-replica-index", "tf-replica-type",
    "tf-replica-index", "mpi-job-name", "mpi-job-role",         "mpi_job_name"};

// Returns the name without its prefix; nullopt: the label is of no other operator.
std::optional<std::string_view> NameOf(std::string_view label) {
  for (const std::string_view prefix : kPrefixes) {
    if (label.starts_with(prefix)) return label.substr(prefix.size());
  }
  if (std::find(kOlder.begin(), kOlder.end(), label) == kOlder.end()) return std::nullopt;
  for (const std::string_view kind : {"pytorch-", "tf-", "mpi-", "mpi_"}) {
    if (label.starts_with(kind)) return label.substr(kind.size());
  }
  return label;
}

// Returns the label of a TrainingJob's pods with the same values; empty: there is none.
std::string CounterpartOf(std::string_view name) {
  if (name == "job-name" || name == "job_name" || name == "jobset-name" || name == "trainjob-name")
    return kJobLabel;
  if (name == "replica-index" || name == "job-completion-index") return kRankLabel;
  return {};
}

class LabelAdapter {
 public:
  LabelAdapter(Source& source, const std::string& path) : source_(source), path_(path) {
    const api::Node* name = source.Find("metadata.name");
    if (name != nullptr && name->scalar.is_string()) job_ = name->scalar.get<std::string>();
  }

  void Walk(Json& value, const std::string& path) {
    if (value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) Walk(value[i], fmt::format("{}[{}]", path, i));
    }
    if (!value.is_object()) return;
    for (auto& [key, child] : value.items()) {
      const std::string inner = path + "." + key;
      if (key == "matchLabels" && child.is_object()) {
        Selector(child, inner);
      } else if (key == "matchExpressions" && child.is_array()) {
        for (Json& expression : child) {
          if (expression.is_object() && expression.contains("key"))
            Key(expression["key"], inner, Values(expression));
        }
      } else if ((key == "matchLabelKeys" || key == "mismatchLabelKeys") && child.is_array()) {
        for (Json& label : child) Key(label, inner, true);
      } else if (key == "fieldPath" && child.is_string()) {
        Field(child, inner);
      } else {
        Walk(child, inner);
      }
    }
  }

 private:
  // Whether an expression remains true of the same pods under the counterpart of its key.
  bool Values(const Json& expression) const {
    const Json& values = json::Items(expression, "values");
    return std::all_of(values.begin(), values.end(), [&](const Json& value) { return value == Json(job_); });
  }

  void Selector(Json& labels, const std::string& path) {
    Json adapted = Json::object();
    for (const auto& [key, value] : labels.items()) {
      Json label = key;
      Key(label, path, value == Json(job_));
      adapted[label.get<std::string>()] = value;
    }
    labels = std::move(adapted);
  }

  // `same`: the values of the label are those of its counterpart.
  void Key(Json& key, const std::string& path, bool same) {
    const auto name = key.is_string() ? NameOf(key.get_ref<const std::string&>()) : std::nullopt;
    if (!name) return;
    const std::string counterpart = CounterpartOf(*name);
    if (!counterpart.empty() && same) {
      source_.Note(path, fmt::format("{} became {}, the label of the pods of a TrainingJob",
                                     key.get<std::string>(), counterpart));
      key = counterpart;
      return;
    }
    source_.Note(
        path,
        fmt::format("no pod has the label {}, so nothing is selected: pods have {}: NAME, and {}; in a job "
                    "with roles also ringmaster.dev/role",
                    key.get<std::string>(), kJobLabel, kRankLabel));
  }

  void Field(Json& field, const std::string& path) {
    const auto text = field.get<std::string>();
    const size_t open = text.find("['"), close = text.find("']");
    if (open == text.npos || close == text.npos || close < open) return;
    const std::string label = text.substr(open + 2, close - open - 2);
    const auto name = NameOf(label);
    if (!name) return;
    const std::string counterpart = CounterpartOf(*name);
    if (counterpart.empty()) {
      return source_.Note(path,
                          fmt::format("the value is empty: the pods of a TrainingJob do not have {}", label));
    }
    source_.Note(
        path,
        fmt::format("{} became {}, the label of the pods of a TrainingJob{}", label, counterpart,
                    counterpart == kRankLabel ? ", where the Master is 0 and the first worker 1 if there "
                                                "are both"
                                              : ""));
    field = fmt::format("metadata.labels['{}']", counterpart);
  }

  Source& source_;
  const std::string& path_;
  std::string job_;
};

}  // namespace

void AdaptVariables(Source& source, const std::string& command_path, const std::string& framework, bool agent,
                    Json& container) {
  VariableAdapter(source, command_path, framework, agent, container).Adapt();
}

void AdaptLabels(Source& source, const std::string& path, Json& pod_template) {
  LabelAdapter(source, path).Walk(pod_template, path);
}

}  // namespace ringmaster::cli::convert
