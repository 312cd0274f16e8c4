// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/script.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "api/launchers.h"
#include "base/file.h"

namespace ringmaster::cli::launch {
namespace {

constexpr size_t kScriptBytes = size_t{4} << 20;
constexpr size_t kJobNameBytes = 40;  // a job's name has at most 48

std::string_view LastName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsPython(std::string_view word) { return LastName(word).starts_with("python"); }

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Calls `take` with each item of "a as x, b".
template <class Take>
void ForItems(std::string_view list, Take take) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view item = Trimmed(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    item = item.substr(0, item.find_first_of(" \t;"));
    if (!item.empty()) take(item);
  }
}

bool Imports(const std::vector<std::string>& modules, std::string_view module) {
  return std::any_of(modules.begin(), modules.end(), [&](const std::string& name) {
    return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
  });
}

}  // namespace

std::vector<std::string> WithInterpreter(std::vector<std::string> command) {
  if (!command.empty() && command.front().ends_with(".py")) command.insert(command.begin(), "python3");
  return command;
}

std::string ScriptOf(const std::vector<std::string>& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i].ends_with(".py")) return command[i];
    if (command[i] != "-m" || i == 0 || !IsPython(command[i - 1]) || i + 1 == command.size()) continue;
    if (!api::FindLaunchersIn({command[i - 1], "-m", command[i + 1]}).empty())
      continue;  // its script follows
    std::string path = command[i + 1];
    std::replace(path.begin(), path.end(), '.', '/');
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored) ? path + "/__main__.py" : path + ".py";
  }
  return {};
}

std::string ScriptInFolder(const std::vector<std::string>& command) {
  std::string script = ScriptOf(command);
  const bool is_word = std::find(command.begin(), command.end(), script) != command.end();
  if (!is_word || script.starts_with('/') || script.find_first_of(" \t\n;&|") != script.npos) return {};
  return script;
}

std::string ReadScript(const std::vector<std::string>& command) {
  const std::string script = ScriptOf(command);
  if (script.empty()) return {};
  const Result<std::string> text = ReadFile(script, kScriptBytes);
  return text.ok() ? *text : std::string();
}

std::vector<std::string> ImportsOf(std::string_view script) {
  std::vector<std::string> modules;
  while (!script.empty()) {
    const size_t end = std::min(script.find('\n'), script.size());
    std::string_view line = script.substr(0, end);
    line = Trimmed(line.substr(0, line.find('#')));
    script.remove_prefix(std::min(end + 1, script.size()));
    if (line.starts_with("import ")) {
      ForItems(line.substr(7), [&](std::string_view item) { modules.emplace_back(item); });
    } else if (line.starts_with("from ")) {
      const size_t import = line.find(" import ");
      if (import == line.npos) continue;
      const std::string module(Trimmed(line.substr(5, import - 5)));
      modules.push_back(module);
      std::string_view names = Trimmed(line.substr(import + 8));
      if (names.starts_with('(')) names.remove_prefix(1);
      if (names.ends_with(')')) names.remove_suffix(1);
      ForItems(names, [&](std::string_view item) { modules.push_back(module + "." + std::string(item)); });
    }
  }
  return modules;
}

Training Guess(const std::vector<std::string>& command, std::string_view script) {
  const std::vector<std::string> modules = ImportsOf(script);
  const bool torch = Imports(modules, "torch");
  for (const api::LauncherCall& launcher : api::FindLaunchersIn(command)) {
    if (launcher.kind == api::LauncherKind::kDeepspeed) return {"deepspeed", "ranks"};
    if (launcher.kind == api::LauncherKind::kHorovodrun) return {"horovod", "ranks"};
    if (launcher.kind == api::LauncherKind::kMpirun) return {"mpi", "ranks"};
    return {"pytorch", "ranks"};
  }
  if (Imports(modules, "ringmaster.torch")) return {"pytorch", "library"};
  if (Imports(modules, "ringmaster.jax")) return {"jax", "library"};
  if (Imports(modules, "ringmaster.numpy")) return {"custom", "library"};
  if (!torch && (Imports(modules, "jax") || Imports(modules, "flax"))) return {"jax", "ranks"};
  if (!torch && (Imports(modules, "tensorflow") || Imports(modules, "keras"))) return {"tensorflow", "ranks"};
  const bool python = !ScriptOf(command).empty() || (!command.empty() && IsPython(command.front()));
  return {python ? "pytorch" : "custom", "ranks"};
}

std::string NameFor(const std::vector<std::string>& command) {
  std::string path = ScriptOf(command);
  if (path.empty() && !command.empty()) path = command.front();
  std::filesystem::path file(path);
  if (file.filename() == "__main__.py") file = file.parent_path();
  std::string name;
  for (const char c : file.stem().string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    const char next = plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '-';
    if (next == '-' && (name.empty() || name.back() == '-')) continue;
    name += next;
  }
  name = name.substr(0, kJobNameBytes);
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? "job" : name;
}

}  // namespace ringmaster::cli::launch
