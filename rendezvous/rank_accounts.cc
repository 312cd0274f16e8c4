// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/rank_accounts.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace ringmaster::rendezvous {

std::string FindMissingRank(const std::vector<RanksOfWorker>& workers) {
  std::map<int32_t, std::map<int32_t, int64_t>> worlds;  // counts, by size and rank
  std::string idle;
  for (const RanksOfWorker& worker : workers) {
    if (worker.ranks->empty() && !worker.launcher && idle.empty()) idle = worker.pod;
    for (const RankCount& one : *worker.ranks) worlds[one.size][one.rank] += one.count;
  }
  if (worlds.empty()) return kNoRankSeen;
  for (const auto& [size, counts] : worlds) {
    int64_t most = 0;
    for (const auto& [rank, count] : counts) most = std::max(most, count);
    for (int32_t rank = 0; rank < size; ++rank) {
      const auto it = counts.find(rank);
      if (it == counts.end() || it->second < most)
        return "rank " + std::to_string(rank) + " of " + std::to_string(size) +
               " was not seen to end with exit code 0";
    }
  }
  if (idle.empty()) return "";
  return "no rank ran on " + idle +
         ": the launcher must start ranks on all workers, so let it use the hosts of the job, with at least "
         "as many ranks as workers.replicas times workers.slots";
}

std::string FindOpenRank(const std::vector<RanksOfWorker>& workers, int32_t min) {
  int32_t worked = 0;
  for (const RanksOfWorker& worker : workers) {
    if (worker.open > 0) return "a rank on " + worker.pod + " was not seen to end with exit code 0";
    worked += worker.ranks->empty() ? 0 : 1;
  }
  if (worked == 0) return kNoRankSeen;
  if (worked >= min) return "";
  return "ranks have ended with exit code 0 on " + std::to_string(worked) +
         " workers only, and workers.min is " + std::to_string(min);
}

}  // namespace ringmaster::rendezvous
