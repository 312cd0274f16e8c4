// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include "operator/wiring/pod_security_checks.h"
#include "operator/wiring/tree.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {
namespace {

void AddSentences(const Refusals& refusals, const char* level, const char* milder,
                  std::vector<std::string>& sentences) {
  for (const Refusal& refusal : refusals) {
    sentences.push_back(
        fmt::format("{} {}, which Pod Security level {} refuses; {}, or label the namespace "
                    "pod-security.kubernetes.io/enforce={}",
                    refusal.field, refusal.what, level, refusal.remedy, milder));
  }
}

}  // namespace

void EachContainer(const Json& pod, const std::function<void(const Json&, const std::string&)>& visit) {
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    const Json* containers = Find(pod, {"spec", list});
    if (containers == nullptr || !containers->is_array()) continue;
    for (const Json& container : *containers)
      visit(container, fmt::format("spec.{}[{}]", list, Text(container, {"name"})));
  }
}

bool InUserNamespace(const Json& pod) {
  const Json* host_users = Find(pod, {"spec", "hostUsers"});
  return host_users != nullptr && *host_users == false;
}

std::vector<std::string> PodSecurityRefusals(const Json& pod, const std::string& level) {
  std::vector<std::string> sentences;
  if (level != "baseline" && level != "restricted") return sentences;
  Refusals baseline, restricted;
  CheckBaseline(pod, baseline);
  AddSentences(baseline, level.c_str(), "privileged", sentences);
  if (level == "baseline") return sentences;
  CheckRestricted(pod, restricted);
  AddSentences(restricted, "restricted", baseline.empty() ? "baseline" : "privileged", sentences);
  return sentences;
}

}  // namespace ringmaster::wiring
