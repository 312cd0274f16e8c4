// SPDX-License-Identifier: Apache-2.0

#include "cli/history/busy_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/history/worker_names.h"

namespace ringmaster::cli {
namespace {

using rendezvous::RankBusyTime;

// Microseconds and four digits are enough to compare workers, and short.
std::string NumbersText(const std::vector<RankBusyTime>& ranks, double RankBusyTime::*member) {
  std::string text = "[";
  for (const RankBusyTime& rank : ranks) {
    if (text.size() > 1) text += ',';
    text += rank.steps == 0 ? "null" : fmt::format("{:.4g}", rank.*member);
  }
  return text + "]";
}

bool IsListOf(const Json& list, size_t size) {
  return list.is_array() && list.size() == size &&
         std::all_of(list.begin(), list.end(),
                     [](const Json& item) { return item.is_number() || item.is_null(); });
}

// A line, as an object or an array.
struct Window {
  Json step = 0;
  Json seconds;
  Json longest;
  Json stragglers;
};

Window WindowIn(const Json& line) {
  const auto value = [&](const char* key, size_t index) {
    if (line.is_array()) return index < line.size() ? line[index] : Json();
    const auto it = line.find(key);
    return it != line.end() ? *it : Json();
  };
  return {value("step", 1), value("seconds", 2), value("longest", 3), value("stragglers", 4)};
}

}  // namespace

std::string BusyLine(const rendezvous::GangBusyTimes& times, double monotonic_seconds, bool names) {
  Json stragglers = Json::array();
  for (size_t rank = 0; rank < times.ranks.size(); ++rank)
    if (times.ranks[rank].straggler) stragglers.push_back(rank);
  const std::string means = NumbersText(times.ranks, &RankBusyTime::seconds);
  const std::string longest = NumbersText(times.ranks, &RankBusyTime::longest);
  if (!names)
    return fmt::format("[{:.3f},{},{},{}{}]", monotonic_seconds, times.step, means, longest,
                       stragglers.empty() ? "" : "," + stragglers.dump());
  return fmt::format(
      R"({{"monotonicSeconds":{:.3f},"step":{},"seconds":{},"longest":{}{},"generation":{},"workers":{}}})",
      monotonic_seconds, times.step, means, longest,
      stragglers.empty() ? "" : R"(,"stragglers":)" + stragglers.dump(), times.generation,
      DumpJson(Json(ShortNames(*times.pods))));
}

void MergeBusyTimes(const rendezvous::GangBusyTimes& times, rendezvous::GangBusyTimes* sum) {
  sum->step = times.step;
  for (size_t i = 0; i < sum->ranks.size(); ++i) {
    const RankBusyTime& next = times.ranks[i];
    RankBusyTime& rank = sum->ranks[i];
    rank.straggler = next.straggler;
    if (next.steps == 0) continue;
    const auto before = static_cast<double>(rank.steps);
    const auto added = static_cast<double>(next.steps);
    rank.seconds = (rank.seconds * before + next.seconds * added) / (before + added);
    rank.steps += next.steps;
    rank.longest = std::max(rank.longest, next.longest);
    rank.micro_batches = next.micro_batches;
  }
}

void BusyHistory::Read(std::string_view line) {
  const auto read = ParseJson(line);
  if (!read.ok() || (!read->is_object() && !read->is_array())) return;
  if (const Json& workers = json::Items(*read, "workers"); !workers.empty()) {
    std::vector<std::string> names;
    for (const Json& name : workers) names.push_back(name.is_string() ? name.get<std::string>() : "");
    workers_ = Json(LongNames(names));
    windows_.clear();
  }
  const size_t size = workers_.size();
  Window window = WindowIn(*read);
  if (size == 0 || !IsListOf(window.seconds, size) || !IsListOf(window.longest, size)) return;
  if (windows_.size() == kWindows) windows_.pop_front();
  windows_.push_back(Json::array({window.step.is_number_integer() ? window.step : Json(0),
                                  std::move(window.seconds), std::move(window.longest)}));
  ++count_;
  stragglers_ = Json::array();
  if (!window.stragglers.is_array()) return;
  for (const Json& rank : window.stragglers)
    if (rank.is_number_unsigned() && rank.get<uint64_t>() < size) stragglers_.push_back(rank);
}

Json BusyHistory::ToJson(uint64_t after) const {
  const size_t fresh =
      static_cast<size_t>(std::min<uint64_t>(count_ - std::min(after, count_), windows_.size()));
  // With fewer windows than it has missed, the reader's windows are of an earlier generation or too old.
  const bool reset = after == 0 || count_ - after >= windows_.size();
  Json windows = Json::array();
  for (size_t i = windows_.size() - fresh; i < windows_.size(); ++i) windows.push_back(windows_[i]);
  return {
      {"reset", reset}, {"workers", workers_}, {"stragglers", stragglers_}, {"windows", std::move(windows)}};
}

}  // namespace ringmaster::cli
