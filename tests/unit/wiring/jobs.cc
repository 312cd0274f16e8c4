// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/wiring/jobs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "api/load.h"
#include "base/file.h"

namespace ringmaster::wiring {
namespace {

constexpr const char* kJobsFolder = "tests/unit/wiring/jobs";

const std::map<std::string, Gang> kGangs = {{"none", Gang::kNone},
                                            {"gate", Gang::kGate},
                                            {"native", Gang::kNative},
                                            {"volcano", Gang::kVolcano},
                                            {"coscheduling", Gang::kCoscheduling}};

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void ReadHeader(const std::string& text, Case& item) {
  Context& context = item.context;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.starts_with("# ");) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(2, colon - 2), value = line.substr(colon + 2);
    if (key == "gang") context.gang = kGangs.at(value);
    if (key == "native") context.native = FindNativeApi(value);
    if (key == "attempt") context.attempt = std::stoll(value);
    if (key == "excluded") context.excluded_nodes = Split(value);
    if (key == "avoided") context.avoided_nodes = Split(value);
    if (key == "domain" || key == "near") {
      auto& labels = key == "domain" ? context.domain : context.near;
      for (const std::string& label : Split(value))
        labels.emplace(label.substr(0, label.find('=')), label.substr(label.find('=') + 1));
    }
    if (key == "host-ports") context.host_port_base = std::stoi(value);
  }
}

api::TrainingJob Load(const std::string& text, const std::string& place) {
  api::Loaded loaded = api::LoadYaml(text);
  for (const api::Problem& problem : loaded.problems) ADD_FAILURE() << place << ": " << problem.ToString();
  return std::move(loaded.job);
}

}  // namespace

Context PlainContext() {
  Context context;
  context.worker_image = "registry.example/ringmaster-worker:1";
  context.coordinator_address = "ringmaster-coordinator.ringmaster.svc:7470";
  context.coordinator_ca_pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
  return context;
}

Case LoadCase(const std::string& name) {
  const std::string path = fmt::format("{}/{}.yaml", kJobsFolder, name);
  auto text = ReadFile(path);
  if (!text.ok()) {
    ADD_FAILURE() << text.error().message;
    return {};
  }
  Case result{name, Load(*text, path), PlainContext()};
  ReadHeader(*text, result);
  result.context.size = static_cast<int32_t>(RanksOf(result.job, result.job.spec.workers.replicas).size());
  return result;
}

std::vector<Case> AllCases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kJobsFolder))
    names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  std::vector<Case> cases;
  for (const std::string& name : names) cases.push_back(LoadCase(name));
  return cases;
}

api::TrainingJob JobWith(std::string_view spec, std::string_view workers) {
  return Load(fmt::format("apiVersion: ringmaster.dev/v1alpha1\n"
                          "kind: TrainingJob\n"
                          "metadata: {{name: demo, namespace: research}}\n"
                          "spec:\n"
                          "  framework: native\n"
                          "  workers: {}\n"
                          "  training:\n"
                          "    model: {{kind: mlp}}\n"
                          "    data: {{kind: idx, path: /data}}\n"
                          "    steps: 10\n"
                          "{}",
                          workers, spec),
              std::string(spec));
}

}  // namespace ringmaster::wiring
