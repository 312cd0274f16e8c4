// SPDX-License-Identifier: Apache-2.0

#include "tests/tidy/rules.h"

#include <regex>

namespace ringmaster::tidy {
namespace {

// Calls `visit(number, line)` for every line.
template <class Visit>
void EachLine(std::string_view text, Visit visit) {
  int number = 1;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    visit(number++, text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

std::vector<Finding> Matches(std::string_view text, const std::regex& pattern, const std::string& what) {
  std::vector<Finding> findings;
  EachLine(text, [&](int number, std::string_view line) {
    if (std::regex_search(line.begin(), line.end(), pattern)) findings.push_back({number, what});
  });
  return findings;
}

// Returns the code without comments and string literals, line by line. Does not support raw strings over
// several lines.
std::string CodeOnly(std::string_view text) {
  std::string code;
  bool block_comment = false;
  EachLine(text, [&](int, std::string_view line) {
    bool in_string = false;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string_view two = line.substr(i, 2);
      if (block_comment) {
        if (two == "*/") block_comment = false, ++i;
      } else if (in_string) {
        if (line[i] == '\\')
          ++i;
        else if (line[i] == '"')
          in_string = false;
      } else if (two == "//") {
        break;
      } else if (two == "/*") {
        block_comment = true;
        ++i;
      } else if (line[i] == '"' && (i == 0 || line[i - 1] != '\'')) {
        in_string = true;
      } else {
        code += line[i];
      }
    }
    code += '\n';
  });
  return code;
}

}  // namespace

const IncludeRules& AllowedIncludes() {
  static const IncludeRules kRules = {
      {"base", {}},
      {"base/http", {"base"}},
      {"api", {"base"}},
      {"rendezvous", {"base"}},

      {"operator/core", {"base", "rendezvous", "operator/core/decide"}},
      {"operator/core/capacity", {"base", "operator/core"}},
      {"operator/core/queue", {"base", "operator/core", "operator/core/capacity"}},
      {"operator/core/decide", {"base", "rendezvous", "operator/core", "operator/core/queue"}},
      {"operator/core/planner",
       {"base", "operator/core", "operator/core/capacity", "operator/core/queue", "operator/core/decide"}},
      {"operator/control", {"base", "api", "rendezvous", "operator/core", "operator/core/decide"}},
      {"operator/local", {"base", "api", "operator/core", "operator/core/decide", "operator/control"}},
      {"operator/wiring", {"base", "api", "operator/core", "operator/core/capacity"}},
      {"operator/kube", {"base", "api", "operator/kube/watch"}},
      {"operator/kube/watch", {"base", "operator/kube"}},
      {"operator/kube/backend",
       {"base", "api", "operator/core", "operator/core/capacity", "operator/core/decide",
        "operator/core/planner", "operator/core/queue", "operator/control", "operator/wiring",
        "operator/kube", "operator/kube/watch"}},
      {"operator/election", {"base", "operator/kube"}},
      {"operator/identity", {"base", "rendezvous", "operator/kube"}},
      {"operator/serve", {"base", "base/http", "operator/kube"}},
      {"operator",
       {"base", "base/http", "rendezvous", "operator/core", "operator/core/capacity", "operator/control",
        "operator/election", "operator/identity", "operator/kube", "operator/kube/backend",
        "operator/kube/watch", "operator/serve", "operator/wiring"}},

      {"include", {}},
      {"worker/fabric", {"base", "worker/fabric/shm", "worker/fabric/ucx"}},
      {"worker/fabric/loopback", {"base", "worker/fabric"}},
      {"worker/fabric/nccl", {"base", "worker/fabric"}},
      {"worker/fabric/rma", {"base", "worker/fabric", "worker/fabric/ucx"}},
      {"worker/fabric/shm", {"base", "worker/fabric"}},
      {"worker/fabric/ucx", {"base", "worker/fabric"}},
      {"worker/compute/engine", {"base"}},
      {"worker/compute/numerics", {"base", "worker/compute/engine"}},
      {"worker/compute/optimizer", {"base", "worker/compute/engine"}},
      {"worker/compute/device",
       {"base", "worker/compute/engine", "worker/compute/numerics", "worker/compute/optimizer",
        "worker/fabric"}},
      {"worker/compute/cuda",
       {"base", "worker/compute/engine", "worker/compute/numerics", "worker/compute/optimizer",
        "worker/compute/device", "worker/fabric", "worker/fabric/nccl", "worker/fabric/rma"}},
      {"worker/data", {"base"}},
      {"worker/checkpoint", {"base"}},
      {"worker/inventory", {"base"}},
      {"worker/agent/net", {"base", "rendezvous"}},
      {"worker/agent/shell", {"base", "rendezvous", "worker/agent/net"}},
      {"worker/agent/mpi", {"base", "rendezvous", "worker/agent/net", "worker/agent/shell"}},
      {"worker/agent/kubeflow", {"base", "rendezvous", "worker/agent/net"}},
      {"worker/agent/trainer",
       {"base", "rendezvous", "worker/agent/net", "worker/agent/shell", "worker/agent/mpi"}},
      {"worker/agent/program",
       {"base", "rendezvous", "worker/agent/net", "worker/agent/shell", "worker/agent/mpi",
        "worker/agent/kubeflow", "worker/agent/trainer"}},
      {"worker/agent",
       {"base", "rendezvous", "worker/agent/shell", "worker/agent/mpi", "worker/agent/trainer",
        "worker/agent/program"}},
      {"worker/trainer",
       {"base", "api", "rendezvous", "worker/agent/trainer", "worker/checkpoint", "worker/compute/device",
        "worker/compute/engine", "worker/compute/numerics", "worker/compute/optimizer", "worker/data",
        "worker/fabric", "worker/fabric/shm", "worker/inventory"}},
      {"worker/library",
       {"base", "api", "rendezvous", "include", "worker/agent/trainer", "worker/checkpoint",
        "worker/compute/device", "worker/compute/engine", "worker/compute/numerics", "worker/data",
        "worker/fabric", "worker/trainer"}},
      {"worker/bin", {"base", "worker/compute/device", "worker/inventory", "worker/trainer"}},

      {"cli/history", {"base", "rendezvous"}},
      {"cli/compare", {"base", "cli", "cli/history"}},
      {"cli/plot", {"base", "rendezvous", "cli", "cli/history"}},
      {"cli/track", {"base", "rendezvous", "cli/history", "operator/kube"}},
      {"cli/ui", {"base", "base/http", "rendezvous", "cli/history"}},
      {"cli/run",
       {"base", "base/http", "api", "cli/history", "cli/plot", "cli/track", "cli/ui", "operator/serve",
        "rendezvous", "operator/control", "operator/core", "operator/local", "worker/checkpoint",
        "worker/compute/device", "worker/compute/engine", "worker/inventory", "worker/trainer", "cli"}},
      {"cli/cluster",
       {"base", "base/http", "api", "operator/core", "operator/kube", "operator/kube/backend",
        "operator/kube/watch", "operator/wiring", "cli", "cli/history", "cli/plot", "cli/ui"}},
      {"cli/convert", {"base", "api", "operator/wiring"}},
      {"cli/launch", {"base", "api"}},
      {"cli/weights",
       {"base", "api", "operator/kube/backend", "operator/wiring", "worker/checkpoint",
        "worker/compute/engine", "worker/trainer", "cli", "cli/cluster", "cli/plot"}},
      {"cli",
       {"base", "api", "operator/wiring", "worker/compute/device", "worker/inventory", "cli/cluster",
        "cli/convert", "cli/launch", "cli/run", "cli/ui"}},
  };
  return kRules;
}

std::string FolderOf(std::string_view path, const IncludeRules& rules) {
  std::string best;
  for (const auto& [folder, allowed] : rules)
    if (path.starts_with(folder + "/") && folder.size() > best.size()) best = folder;
  return best;
}

std::vector<Finding> ForbiddenIncludes(std::string_view path, std::string_view text,
                                       const IncludeRules& rules) {
  std::vector<Finding> findings;
  const std::string from = FolderOf(path, rules);
  if (from.empty()) return findings;
  static const std::regex kInclude(R"re(^\s*#\s*include\s*"([^"]+)")re");
  EachLine(text, [&](int number, std::string_view line) {
    std::cmatch match;
    if (!std::regex_search(line.data(), line.data() + line.size(), match, kInclude)) return;
    const std::string target = match[1];
    const std::string to = FolderOf(target, rules);
    if (to.empty()) {
      findings.push_back(
          {number, "#include \"" + target + "\": give the path from the root of the repository"});
      return;
    }
    const bool allowed = to == from || rules.at(from).contains(to);
    if (!allowed) findings.push_back({number, from + " must not include " + to + " (" + target + ")"});
  });
  return findings;
}

std::vector<Finding> HeaderRules(std::string_view text) {
  static const std::regex kUsing(R"(\busing\s+namespace\b)");
  std::vector<Finding> findings = Matches(CodeOnly(text), kUsing, "`using namespace` in a header");
  if (text.find("#pragma once\n") == std::string_view::npos) findings.push_back({0, "no #pragma once"});
  return findings;
}

std::vector<Finding> TodoMarks(std::string_view text) {
  // Spelled in two halves so that this file does not find itself.
  static const std::regex kMarks(
      "\\b("
      "TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b");
  return Matches(text, kMarks, "a note for later: do it, or open an issue");
}

std::vector<Finding> TooLong(std::string_view text, int max_lines) {
  int lines = 0;
  EachLine(text, [&](int, std::string_view) { ++lines; });
  if (lines <= max_lines) return {};
  return {{0, std::to_string(lines) + " lines, more than " + std::to_string(max_lines)}};
}

std::vector<Finding> Sleeps(std::string_view text) {
  static const std::regex kSleep(
      R"(\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep)\b|\bsleep\s*\()");
  static const std::regex kPolling(R"(\bwhile\s*\(!|\bwhile (?!True\b)\w.*:$)");  // of C++, of Python
  std::vector<Finding> findings;
  int polling_line = -100;  // of the newest loop that waits for a condition
  EachLine(CodeOnly(text), [&](int number, std::string_view line) {
    if (std::regex_search(line.begin(), line.end(), kPolling)) polling_line = number;
    if (std::regex_search(line.begin(), line.end(), kSleep) && number - polling_line > 3)
      findings.push_back({number, "a test sleeps: wait for the event with a deadline"});
  });
  return findings;
}

std::vector<Finding> UnfilteredOutput(std::string_view text) {
  static const std::regex kOutput(
      R"(\b(printf|fprintf|vprintf|puts|fputs|putchar|fwrite)\s*\(|\bfmt::print\b|\bstd::c(out|err)\b)");
  return Matches(CodeOnly(text), kOutput,
                 "foreign text could reach a terminal with its escape sequences: use cli/write_text.h");
}

std::vector<Finding> RawMemory(std::string_view text) {
  static const std::regex kRaw(
      R"((^|[^\w:])new\s+[A-Za-z_:]|\bdelete\s+[A-Za-z_*(]|\bdelete\s*\[\]|\b(malloc|calloc|realloc)\s*\()");
  static const std::regex kOwned(
      R"((unique_ptr|shared_ptr)\s*<[^;]*>\s*(\w+\s*)?[({]\s*new\b|reset\s*\(\s*new\b)");
  std::vector<Finding> findings;
  EachLine(CodeOnly(text), [&](int number, std::string_view line) {
    if (std::regex_search(line.begin(), line.end(), kRaw) &&
        !std::regex_search(line.begin(), line.end(), kOwned))
      findings.push_back({number, "raw memory: use an owner such as std::unique_ptr"});
  });
  return findings;
}

std::vector<Finding> UncheckedCasts(std::string_view text) {
  static const std::regex kCast(R"(\breinterpret_cast\s*<([^>]*)>\s*\(\s*(::dlsym)?)");
  static const std::regex kHarmless(
      R"((const )?(volatile )?(char|unsigned char|uint8_t|std::byte|sockaddr|sockaddr_in6?) ?\*)");
  static const std::regex kDowncast(R"(\bdynamic_cast\s*<)");
  std::vector<Finding> findings;
  EachLine(CodeOnly(text), [&](int number, std::string_view line) {
    for (std::cregex_iterator it(line.data(), line.data() + line.size(), kCast), end; it != end; ++it) {
      if (!(*it)[2].matched && !std::regex_match((*it)[1].str(), kHarmless))
        findings.push_back({number, "a cast that the sanitizer does not check here (cmake/Compiler.cmake)"});
    }
    if (std::regex_search(line.begin(), line.end(), kDowncast))
      findings.push_back(
          {number, "a downcast that the sanitizer does not check here (cmake/Compiler.cmake)"});
  });
  return findings;
}

std::vector<std::string> UncheckedFolders(std::string_view cmake) {
  static const std::regex kPattern("folder MATCHES \"([^\"]+)\"");
  const std::string_view rule = cmake.substr(0, cmake.find("PROPERTIES RINGMASTER_PLAIN_OBJECTS ON"));
  std::vector<std::string> patterns;
  for (std::cregex_iterator it(rule.data(), rule.data() + rule.size(), kPattern), end; it != end; ++it)
    patterns.push_back((*it)[1]);
  return patterns;
}

std::vector<Finding> LicenceLine(std::string_view text) {
  bool named = false;
  EachLine(text, [&](int number, std::string_view line) {
    named =
        named || (number <= 5 && line.find("SPDX-License-Identifier: Apache-2.0") != std::string_view::npos);
  });
  if (named) return {};
  return {{0, "no SPDX-License-Identifier: Apache-2.0 in the first five lines"}};
}

std::vector<Finding> NeverRuns(std::string_view text) {
  if (text.find("\nif __name__ == \"__main__\":\n") != std::string_view::npos) return {};
  return {{0, "no if __name__ == \"__main__\": it would do nothing and pass"}};
}

std::vector<std::string> RelativeLinks(std::string_view markdown) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> links;
  bool fenced = false;
  EachLine(markdown, [&](int, std::string_view line) {
    if (line.starts_with("```")) fenced = !fenced;
    if (fenced) return;
    for (std::cregex_iterator it(line.data(), line.data() + line.size(), kLink), end; it != end; ++it) {
      std::string target = (*it)[1];
      target = target.substr(0, target.find('#'));
      if (!target.empty() && target.find("://") == std::string::npos && !target.starts_with("mailto:"))
        links.push_back(target);
    }
  });
  return links;
}

}  // namespace ringmaster::tidy
