// SPDX-License-Identifier: Apache-2.0

#include "api/launchers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "api/pod_template.h"

namespace ringmaster::api {
namespace {

constexpr int kMaxShells = 4;  // sh -c "sh -c ..."

struct NamedLauncher {
  std::string_view name;
  LauncherKind kind;
};
constexpr std::array<NamedLauncher, 11> kPrograms = {{{"torchrun", LauncherKind::kTorchrun},
                                                      {"deepspeed", LauncherKind::kDeepspeed},
                                                      {"deepspeed.pt", LauncherKind::kDeepspeed},
                                                      {"accelerate-launch", LauncherKind::kAccelerate},
                                                      {"horovodrun", LauncherKind::kHorovodrun},
                                                      {"mpirun", LauncherKind::kMpirun},
                                                      {"mpiexec", LauncherKind::kMpirun},
                                                      {"mpiexec.hydra", LauncherKind::kMpirun},
                                                      {"orterun", LauncherKind::kMpirun},
                                                      {"prterun", LauncherKind::kMpirun},
                                                      {"srun", LauncherKind::kSrun}}};
constexpr std::array<NamedLauncher, 7> kModules = {
    {{"torch.distributed.run", LauncherKind::kTorchrun},
     {"torch.distributed.launch", LauncherKind::kTorchrun},
     {"deepspeed.launcher.runner", LauncherKind::kDeepspeed},
     {"accelerate.commands.launch", LauncherKind::kAccelerate},
     {"accelerate.commands.accelerate_cli", LauncherKind::kAccelerate},
     {"horovod.runner", LauncherKind::kHorovodrun},
     {"horovod.runner.launch", LauncherKind::kHorovodrun}}};
constexpr std::array<std::string_view, 6> kShells = {"sh", "bash", "dash", "zsh", "ash", "ksh"};
// Programs that run the command behind their options.
constexpr std::array<std::string_view, 28> kPrefixes = {
    "env",     "exec",    "nohup",      "time",      "nice",     "ionice",   "stdbuf",
    "numactl", "taskset", "timeout",    "sudo",      "nsys",     "ncu",      "gosu",
    "setsid",  "tini",    "chrt",       "dumb-init", "conda",    "mamba",    "poetry",
    "uv",      "pipenv",  "micromamba", "catchsegv", "unbuffer", "xvfb-run", "command"};
constexpr std::array<std::string_view, 9> kKeywords = {"then",  "do",    "else", "if", "elif",
                                                       "while", "until", "!",    "{"};

template <size_t N>
bool IsIn(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string_view BaseName(std::string_view word) { return word.substr(word.rfind('/') + 1); }

bool IsPythonName(std::string_view name) { return name.starts_with("python") || name == "pypy3"; }

bool IsAssignment(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == word.npos || equals == 0 || std::isdigit(static_cast<unsigned char>(word[0])) != 0)
    return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

template <size_t N>
std::optional<LauncherKind> KindOf(const std::array<NamedLauncher, N>& known, std::string_view name) {
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.name == name; });
  return found == known.end() ? std::nullopt : std::optional(found->kind);
}

// Takes the text of a shell apart into the words of its commands. What a shell expands stays as it is
// written.
class ShellText {
 public:
  std::vector<std::vector<std::string>> Split(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\\') {
        if (++i < text.size() && text[i] != '\n') Put(text[i]);
      } else if (c == '\'' || c == '"') {
        i = Quoted(text, i);
      } else if (c == '#' && !in_word_) {
        i = std::min(text.find('\n', i), text.size());
        EndCommand();
      } else if (c == '$' && i + 1 < text.size() && text[i + 1] == '(') {
        EndCommand();
        ++i;
      } else if (std::string_view(";&|()`\n").find(c) != std::string_view::npos) {
        EndCommand();
      } else if (c == ' ' || c == '\t' || c == '\r') {
        EndWord();
      } else {
        Put(c);
      }
    }
    EndCommand();
    return std::move(commands_);
  }

 private:
  void Put(char c) {
    word_ += c;
    in_word_ = true;
  }
  size_t Quoted(std::string_view text, size_t begin) {
    const char quote = text[begin];
    in_word_ = true;
    size_t i = begin + 1;
    for (; i < text.size() && text[i] != quote; ++i) {
      if (quote == '"' && text[i] == '\\' && i + 1 < text.size()) ++i;
      word_ += text[i];
    }
    return i;
  }
  void EndWord() {
    if (in_word_) words_.push_back(std::exchange(word_, {}));
    in_word_ = false;
  }
  void EndCommand() {
    EndWord();
    if (!words_.empty()) commands_.push_back(std::exchange(words_, {}));
  }

  std::vector<std::vector<std::string>> commands_;
  std::vector<std::string> words_;
  std::string word_;
  bool in_word_ = false;
};

class Finder {
 public:
  // `depth`: of shells around the words.
  void Scan(const std::vector<std::string>& words, int depth) {
    size_t i = 0;
    while (i < words.size() && (IsIn(kKeywords, words[i]) || IsAssignment(words[i]))) ++i;
    if (i == words.size()) return;
    if (IsIn(kPrefixes, BaseName(words[i]))) i = BehindPrefix(words, i + 1);
    if (i == words.size()) return;
    const std::string_view program = BaseName(words[i]);
    if (IsIn(kShells, program)) return Shell(words, i + 1, depth);
    if (IsPythonName(program)) return Module(words, i, depth);
    if (program == "accelerate") {
      if (i + 1 < words.size() && words[i + 1] == "launch")
        Add(LauncherKind::kAccelerate, words, i, i + 2, depth);
      return;
    }
    if (program == "tune") {  // of torchtune: it has the options of torchrun
      if (i + 1 < words.size() && words[i + 1] == "run") Add(LauncherKind::kTorchrun, words, i, i + 2, depth);
      return;
    }
    if (const auto kind = KindOf(kPrograms, program)) Add(*kind, words, i, i + 1, depth);
  }

  std::vector<LauncherCall> calls;

 private:
  // Returns the index of the first word that is a program we know. The others are options of the prefix, and
  // their values, such as the name of an environment of conda.
  static size_t BehindPrefix(const std::vector<std::string>& words, size_t begin) {
    for (size_t i = begin; i < words.size(); ++i) {
      const std::string_view name = BaseName(words[i]);
      const bool known = KindOf(kPrograms, name) || IsIn(kShells, name) || IsPythonName(name) ||
                         name == "accelerate" || name == "tune";
      const std::string_view before = words[i - 1];
      if (known && before != "-n" && before != "--name" && before != "-p" && before != "--prefix") return i;
    }
    return words.size();
  }

  void Shell(const std::vector<std::string>& words, size_t i, int depth) {
    for (; i + 1 < words.size() && words[i].starts_with('-'); ++i) {
      const bool letters = !words[i].starts_with("--");
      if (letters && words[i].back() == 'o') ++i;  // bash -euo pipefail -c ...
      if (!letters || words[i].back() != 'c' || !words[i].starts_with('-')) continue;
      if (depth >= kMaxShells) return;
      for (const auto& command : ShellText().Split(words[i + 1])) Scan(command, depth + 1);
      return;
    }
  }

  void Module(const std::vector<std::string>& words, size_t begin, int depth) {
    for (size_t i = begin + 1; i + 1 < words.size() && words[i].starts_with('-'); ++i) {
      if (words[i] == "-c") return;
      if (words[i] == "-W" || words[i] == "-X") ++i;
      if (words[i] != "-m") continue;
      const auto kind = KindOf(kModules, words[i + 1]);
      const bool command_line = words[i + 1].ends_with("accelerate_cli");
      if (command_line && (i + 2 >= words.size() || words[i + 2] != "launch")) return;
      if (kind) Add(*kind, words, begin, i + (command_line ? 3 : 2), depth);
      return;
    }
  }

  // words[begin..end): the launcher.
  void Add(LauncherKind kind, const std::vector<std::string>& words, size_t begin, size_t end, int depth) {
    LauncherCall call{kind, "", {}, depth > 0};
    for (size_t i = begin; i < end; ++i) call.name += (i == begin ? "" : " ") + words[i];
    call.words.assign(words.begin() + static_cast<std::ptrdiff_t>(end), words.end());
    calls.push_back(std::move(call));
  }
};

void AddWords(const Json* list, std::vector<std::string>& words) {
  if (list == nullptr || !list->is_array()) return;
  for (const Json& word : *list)
    if (word.is_string()) words.push_back(word.get<std::string>());
}

}  // namespace

std::vector<LauncherCall> FindLaunchersIn(const std::vector<std::string>& words) {
  Finder finder;
  finder.Scan(words, 0);
  return std::move(finder.calls);
}

std::vector<LauncherCall> FindLaunchers(const Json& pod_template) {
  const Json* container = TrainingContainer(pod_template);
  std::vector<std::string> words;
  AddWords(MemberOf(container, "command"), words);
  AddWords(MemberOf(container, "args"), words);
  return FindLaunchersIn(words);
}

std::vector<LauncherOption> OptionsOf(const LauncherCall& call) {
  constexpr std::array<std::string_view, 8> kWithoutValue = {
      "standalone", "no_python", "run_path", "module", "m", "use_env", "help", "multi_gpu"};
  std::vector<LauncherOption> options;
  for (size_t i = 0; i < call.words.size() && call.words[i].starts_with('-'); ++i) {
    const std::string& word = call.words[i];
    const size_t begin = std::min(word.find_first_not_of('-'), word.size());
    const size_t equals = std::min(word.find('=', begin), word.size());
    LauncherOption option{word.substr(begin, equals - begin),
                          equals < word.size() ? word.substr(equals + 1) : ""};
    std::replace(option.name.begin(), option.name.end(), '-', '_');
    const bool takes = equals == word.size() && !IsIn(kWithoutValue, option.name);
    if (takes && i + 1 < call.words.size() && !call.words[i + 1].starts_with('-'))
      option.value = call.words[++i];
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace ringmaster::api
