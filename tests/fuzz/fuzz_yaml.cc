// SPDX-License-Identifier: Apache-2.0

// Fuzzes LoadYaml: it terminates, and an accepted job survives a round trip through YAML and JSON. The text
// up to a NUL is a manifest, the rest a --set path and value.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/load.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::pair<std::string, std::string>> sets;
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const std::string_view rest = text.substr(nul + 1);
    const size_t equals = std::min(rest.find('='), rest.size());
    sets.emplace_back(rest.substr(0, equals), equals < rest.size() ? rest.substr(equals + 1) : "");
    text = text.substr(0, nul);
  }
  const api::Loaded loaded = api::LoadYaml(text, sets);
  if (!loaded.problems.empty()) {
    for (const api::Problem& problem : loaded.problems)
      CHECK(!problem.message.empty() && !problem.ToString().empty());
    return 0;
  }
  CHECK(api::Validate(loaded.job).empty());
  const Json json = api::ToJson(loaded.job);
  const api::Loaded again = api::FromJson(json);
  CHECK(again.problems.empty(), "{}", again.problems.front().ToString());
  CHECK(again.job == loaded.job);
  const api::Loaded as_text = api::LoadYaml(DumpJson(json));
  CHECK(as_text.problems.empty(), "{}", as_text.problems.front().ToString());
  CHECK(as_text.job == loaded.job);
  return 0;
}
