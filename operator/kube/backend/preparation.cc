#include "operator/kube/backend/preparation.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string_view>

namespace ringmaster::kube {
namespace {

// Takes "name=" and a number off the head of `text`.
template <class N>
bool Take(std::string_view& text, std::string_view name, N& value) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

std::string MarkOf(const core::PrepareGang& action, size_t objects) {
  return fmt::format("attempt={},size={},min={},objects={}", action.attempt, action.size, action.min,
                     objects);
}

std::optional<core::PrepareGang> ReadMarks(const std::vector<std::string>& marks) {
  std::map<std::string_view, int64_t> counts;
  for (const std::string& mark : marks) counts[mark] += 1;
  std::optional<core::PrepareGang> newest;
  for (const auto& [mark, count] : counts) {
    std::string_view text = mark;
    core::PrepareGang action;
    int64_t objects = 0;
    const bool whole = Take(text, "attempt=", action.attempt) && Take(text, ",size=", action.size) &&
                       Take(text, ",min=", action.min) && Take(text, ",objects=", objects) && text.empty();
    if (!whole || count < objects) continue;
    if (!newest || newest->attempt < action.attempt) newest = action;
  }
  return newest;
}

}  // namespace ringmaster::kube
