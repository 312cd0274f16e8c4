// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/pod_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>

namespace ringmaster::agent {
namespace {

constexpr size_t kDigits = 8;
// Of the pod itself, whatever the launcher's command does.
constexpr std::string_view kOfPod[] = {
    "RINGMASTER_", "HOSTNAME=", "TMPDIR=", "CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES="};

// FNV-1a of 32 bits.
std::string MarkOf(std::string_view variable) {
  uint32_t hash = 2166136261U;
  for (const char c : variable) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return fmt::format("{:08x}", hash);
}

std::set<std::string_view> MarkedBy(std::string_view marks) {
  std::set<std::string_view> marked;
  for (size_t at = 0; at + kDigits <= marks.size(); at += kDigits) marked.insert(marks.substr(at, kDigits));
  return marked;
}

std::string_view VariableName(std::string_view variable) { return variable.substr(0, variable.find('=')); }

}  // namespace

std::string MarksOf(const std::vector<std::string>& variables) {
  std::string marks;
  for (const std::string& variable : variables) marks += MarkOf(variable);
  return marks;
}

std::vector<std::pair<std::string, std::string>> VariablesOfPod(const std::vector<std::string>& own,
                                                                const std::vector<std::string>& pod,
                                                                std::string_view marks) {
  const std::set<std::string_view> marked = MarkedBy(marks);
  std::map<std::string_view, std::string_view> variables;  // of the rank, by name
  for (const std::string& variable : own) variables.emplace(VariableName(variable), variable);
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& variable : pod) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    const auto it = variables.find(VariableName(variable));
    const bool of_pod = std::any_of(std::begin(kOfPod), std::end(kOfPod),
                                    [&](std::string_view start) { return variable.starts_with(start); });
    if (it == variables.end() || of_pod || marked.contains(MarkOf(it->second)))
      out.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return out;
}

std::vector<std::string> VariablesOfLauncherPod(const std::vector<std::string>& own,
                                                const std::vector<std::string>& pod, std::string_view marks,
                                                std::string_view computed) {
  const std::set<std::string_view> marked = MarkedBy(marks);
  std::set<std::string_view> names;
  while (!computed.empty()) {
    const size_t comma = std::min(computed.find(','), computed.size());
    names.insert(computed.substr(0, comma));
    computed.remove_prefix(std::min(comma + 1, computed.size()));
  }
  for (const std::string& variable : pod) names.erase(VariableName(variable));
  std::vector<std::string> out;
  for (const std::string& variable : own)
    if (names.contains(VariableName(variable)) && marked.contains(MarkOf(variable)))
      out.emplace_back(VariableName(variable));
  return out;
}

}  // namespace ringmaster::agent
