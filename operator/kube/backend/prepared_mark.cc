// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/prepared_mark.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "base/hash.h"
#include "operator/kube/backend/gang_apis.h"

namespace ringmaster::kube {
namespace {

// Removes `name` and a number from the head of `text`.
template <class N>
bool Take(std::string_view& text, std::string_view name, N& value) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < N{0}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Removes ",gang=NAME" from the head of `text`, if it is there.
bool TakeGang(std::string_view& text, std::optional<wiring::Gang>& gang) {
  constexpr std::string_view kName = ",gang=";
  if (!text.starts_with(kName)) return true;
  text.remove_prefix(kName.size());
  const std::string_view value = text.substr(0, text.find(','));
  text.remove_prefix(value.size());
  gang = ParseGang(value);
  return gang.has_value();
}

}  // namespace

uint64_t AuthorityHash(const std::string& pem) {
  return pem.empty() ? 0 : Hash64(AsBytes(std::span<const char>(pem)));
}

std::string MarkText(const PreparedMark& mark) {
  return fmt::format("attempt={},size={},min={}{}{},objects={},authority={},ports={}+{}", mark.action.attempt,
                     mark.action.size, mark.action.min, mark.gang ? ",gang=" : "",
                     mark.gang ? GangName(*mark.gang) : "", mark.objects, mark.authority, mark.ports.first,
                     mark.ports.count);
}

std::optional<PreparedMark> ParseMark(std::string_view text) {
  PreparedMark mark;
  const bool whole = Take(text, "attempt=", mark.action.attempt) && Take(text, ",size=", mark.action.size) &&
                     Take(text, ",min=", mark.action.min) && TakeGang(text, mark.gang) &&
                     Take(text, ",objects=", mark.objects) && Take(text, ",authority=", mark.authority) &&
                     Take(text, ",ports=", mark.ports.first) && Take(text, "+", mark.ports.count) &&
                     text.empty();
  return whole ? std::optional(mark) : std::nullopt;
}

std::optional<core::PrepareGang> PreparedAction(const std::vector<std::string>& marks, uint64_t authority) {
  std::map<std::string_view, int64_t> counts;
  for (const std::string& mark : marks) counts[mark] += 1;
  std::optional<core::PrepareGang> newest;
  for (const auto& [text, count] : counts) {
    const std::optional<PreparedMark> mark = ParseMark(text);
    if (!mark || mark->authority != authority || count < mark->objects) continue;
    if (!newest || newest->attempt < mark->action.attempt) newest = mark->action;
  }
  return newest;
}

std::optional<wiring::Gang> PinnedGang(const std::vector<std::string>& marks, int64_t attempt) {
  for (const std::string& text : marks)
    if (const auto mark = ParseMark(text); mark && mark->action.attempt == attempt && mark->gang)
      return mark->gang;
  return std::nullopt;
}

}  // namespace ringmaster::kube
