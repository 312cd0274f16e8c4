// SPDX-License-Identifier: Apache-2.0

#include "api/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace ringmaster::api {
namespace {

// Counts insertions, deletions, substitutions and swaps of neighbours. Ignores case.
size_t Distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

void FindPlaces(const Schema& schema, const std::string& path, std::string_view field,
                std::vector<std::string>& out) {
  for (const Schema& child : schema.fields) {
    const std::string place = path.empty() ? child.name : path + "." + child.name;
    if (child.name == field) out.push_back(place);
    FindPlaces(child, place, field, out);
  }
}

}  // namespace

std::string_view Nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr size_t kLongest = 64;
  if (word.size() > kLongest) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(1, std::min<size_t>(3, word.size() / 3)) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string SuggestField(const Schema& schema, std::string_view field) {
  std::vector<std::string_view> names;
  for (const Schema& child : schema.fields) names.emplace_back(child.name);
  if (const std::string_view near = Nearest(field, names); !near.empty()) {
    return fmt::format("; did you mean \"{}\"?", near);
  }
  std::vector<std::string> places;
  FindPlaces(*JobSchema().Find("spec"), "spec", field, places);
  if (places.size() == 1) return fmt::format("; did you mean {}?", places.front());
  return {};
}

}  // namespace ringmaster::api
