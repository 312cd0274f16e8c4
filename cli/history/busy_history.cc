// SPDX-License-Identifier: Apache-2.0

#include "cli/history/busy_history.h"

#include <fmt/format.h>

#include <algorithm>

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

bool IsListOf(const Json& object, const char* key, size_t size) {
  const auto it = object.find(key);
  return it != object.end() && it->is_array() && it->size() == size &&
         std::all_of(it->begin(), it->end(),
                     [](const Json& item) { return item.is_number() || item.is_null(); });
}

}  // namespace

std::string BusyLine(const rendezvous::GangBusyTimes& times, double monotonic_seconds, bool names) {
  std::string line = fmt::format(R"({{"monotonicSeconds":{:.3f},"step":{})", monotonic_seconds, times.step);
  if (names)
    line += fmt::format(R"(,"generation":{},"workers":{})", times.generation, DumpJson(Json(*times.pods)));
  line += R"(,"seconds":)" + NumbersText(times.ranks, &RankBusyTime::seconds);
  line += R"(,"longest":)" + NumbersText(times.ranks, &RankBusyTime::longest);
  Json stragglers = Json::array();
  for (size_t rank = 0; rank < times.ranks.size(); ++rank)
    if (times.ranks[rank].straggler) stragglers.push_back(rank);
  if (!stragglers.empty()) line += R"(,"stragglers":)" + stragglers.dump();
  return line + "}";
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
  const auto object = ParseJson(line);
  if (!object.ok() || !object->is_object()) return;
  if (const auto workers = object->find("workers"); workers != object->end() && workers->is_array()) {
    workers_ = *workers;
    windows_.clear();
  }
  const size_t size = workers_.size();
  if (size == 0 || !IsListOf(*object, "seconds", size) || !IsListOf(*object, "longest", size)) return;
  if (windows_.size() == kWindows) windows_.pop_front();
  windows_.push_back(
      Json::array({json::Integer(*object, "step"), (*object)["seconds"], (*object)["longest"]}));
  ++count_;
  stragglers_ = Json::array();
  for (const Json& rank : json::Items(*object, "stragglers"))
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
