// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/logged_membership.h"

#include <charconv>

namespace ringmaster::cli {
namespace {

// Returns the word after `key` in `line`; empty when the key is missing.
std::string_view WordAfter(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + key.size());
  return line.substr(0, line.find_first_of(" \n"));
}

}  // namespace

std::optional<LoggedMembership> LastLoggedMembership(std::string_view log) {
  while (!log.empty()) {
    const size_t before = log.find_last_of('\n', log.size() - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view line = log.substr(begin);
    const std::string_view number = WordAfter(line, " generation=");
    const std::string_view transport = WordAfter(line, " transport=");
    LoggedMembership membership;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), membership.generation);
    if (!transport.empty() && error == std::errc() && end == number.data() + number.size()) {
      membership.transport = transport;
      return membership;
    }
    log = log.substr(0, begin == 0 ? 0 : begin - 1);
  }
  return std::nullopt;
}

}  // namespace ringmaster::cli
