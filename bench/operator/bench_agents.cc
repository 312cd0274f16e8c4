// SPDX-License-Identifier: Apache-2.0

// bench_agents FILE
// Answers for the agents of pods on fake nodes (pod_agents.h). The file is a JSON array with the environment
// of each agent: {"RINGMASTER_POD": "gang-1-0", ...}.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "bench/operator/pod_agents.h"
#include "worker/agent/trainer/config.h"

namespace ringmaster::bench {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;

Result<std::vector<agent::Config>> LoadConfigs(const std::string& path) {
  RM_ASSIGN(const std::string text, ReadFile(path, kMaxFileBytes));
  RM_ASSIGN(const Json environments, ParseJson(text));
  std::vector<agent::Config> configs;
  for (const Json& environment : environments) {
    const auto get = [&](const char* name) -> std::optional<std::string> {
      if (!environment.contains(name)) return std::nullopt;
      return std::string(json::Text(environment, name));
    };
    RM_ASSIGN(agent::Config config, agent::LoadConfig(get, "", {.program = {"program"}}));
    configs.push_back(std::move(config));
  }
  return configs;
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bench_agents FILE\n");
    return 64;
  }
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto configs = LoadConfigs(argv[1]);
  if (!configs.ok()) {
    fmt::print(stderr, "{}: {}\n", argv[1], configs.error().message);
    return 1;
  }
  PodAgents(*configs).Run();
  return 0;
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) { return ringmaster::bench::Main(argc, argv); }
