// SPDX-License-Identifier: Apache-2.0

// Windows of busy times from what each worker reports by itself, for the message `busy` of a page. A worker
// of a cluster writes a report into its log every five seconds (cli/cluster/worker_log.h). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "rendezvous/busy_times.h"

namespace ringmaster::cli {

inline constexpr size_t kMaxBusyRanks = 1000;  // in one table

// The steps of a rank since its last report; rendezvous::BusyTime.
struct BusyReport {
  uint64_t generation = 0;
  int rank = 0;
  int64_t step = 0;
  double seconds = 0;
  double longest = 0;
  int32_t micro_batches = 0;
};

using BusyReports = std::map<std::string, const std::deque<BusyReport>*>;  // by pod

// Returns the windows of the newest generation, oldest first. A window has the next report of each rank, in
// the order of steps, so that the clocks of nodes do not matter. Stragglers are marked by the rule of the
// coordinator (rendezvous/straggler_rule.h), in windows of five seconds instead of one.
std::vector<rendezvous::GangBusyTimes> BusyWindows(const BusyReports& reports);

struct WorkerBusy {
  double seconds = 0;  // of a step; of its slowest trainer
  bool straggler = false;
};
// Returns the newest busy time of each pod.
std::map<std::string, WorkerBusy> NewestBusy(const std::vector<rendezvous::GangBusyTimes>& windows);

// The message `busy` of cli/ui/page_feed.h, with all windows; null without any.
Json BusyMessage(const std::vector<rendezvous::GangBusyTimes>& windows);

}  // namespace ringmaster::cli
