// SPDX-License-Identifier: Apache-2.0

#include "cli/history/busy_windows.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cli/history/busy_history.h"
#include "rendezvous/straggler_rule.h"

namespace ringmaster::cli {
namespace {

using rendezvous::GangBusyTimes;

// Returns the reports of the newest generation, in the order of their steps, with the names of the workers.
std::vector<const BusyReport*> NewestReports(const BusyReports& reports, std::map<int, std::string>* pods) {
  uint64_t newest = 0;
  for (const auto& [pod, list] : reports)
    for (const BusyReport& busy : *list) newest = std::max(newest, busy.generation);
  std::vector<const BusyReport*> found;
  for (const auto& [pod, list] : reports) {
    for (const BusyReport& busy : *list) {
      if (busy.generation != newest) continue;
      if (pods->size() == kMaxBusyRanks && !pods->contains(busy.rank)) continue;
      // A rank has one pod.
      if (pods->try_emplace(busy.rank, pod).first->second == pod) found.push_back(&busy);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const BusyReport* one, const BusyReport* other) {
    return std::pair(one->step, one->rank) < std::pair(other->step, other->rank);
  });
  return found;
}

}  // namespace

std::vector<GangBusyTimes> BusyWindows(const BusyReports& reports) {
  std::map<int, std::string> pods;
  const std::vector<const BusyReport*> newest = NewestReports(reports, &pods);
  std::map<int, size_t> index;
  std::vector<std::string> names;
  for (const auto& [rank, pod] : pods) {
    index[rank] = names.size();
    names.push_back(pod);
  }
  const size_t size = names.size();
  GangBusyTimes empty;
  empty.pods = std::make_shared<const std::vector<std::string>>(std::move(names));
  empty.ranks.resize(size);
  std::vector<GangBusyTimes> windows;
  rendezvous::StragglerRule rule(size);
  GangBusyTimes window = empty;
  size_t reported = 0;
  const auto close = [&] {
    rule.Add(window.ranks);
    for (size_t i = 0; i < size; ++i) window.ranks[i].straggler = rule.IsStraggler(i);
    windows.push_back(std::exchange(window, empty));
    reported = 0;
  };
  for (const BusyReport* busy : newest) {
    const size_t at = index[busy->rank];
    if (window.ranks[at].steps > 0) close();  // another rank did not report
    window.generation = busy->generation;
    window.step = busy->step;
    window.ranks[at] = {1, busy->seconds, busy->longest, busy->micro_batches, false};
    if (++reported == size) close();
  }
  if (windows.size() > BusyHistory::kWindows)
    windows.erase(windows.begin(), windows.end() - static_cast<std::ptrdiff_t>(BusyHistory::kWindows));
  return windows;
}

std::map<std::string, WorkerBusy> NewestBusy(const std::vector<GangBusyTimes>& windows) {
  std::map<std::string, WorkerBusy> newest;
  if (windows.empty()) return newest;
  const GangBusyTimes& last = windows.back();
  for (size_t i = 0; i < last.ranks.size(); ++i) {
    if (last.ranks[i].steps == 0) continue;
    WorkerBusy& busy = newest[(*last.pods)[i]];
    busy.seconds = std::max(busy.seconds, last.ranks[i].seconds);
    busy.straggler |= last.ranks[i].straggler;
  }
  return newest;
}

Json BusyMessage(const std::vector<GangBusyTimes>& windows) {
  if (windows.empty()) return {};
  BusyHistory history;
  for (const GangBusyTimes& window : windows) history.Read(BusyLine(window, 0, &window == &windows.front()));
  return history.ToJson(0);
}

}  // namespace ringmaster::cli
