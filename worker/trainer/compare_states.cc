// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/compare_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/hash.h"

namespace ringmaster::trainer {
namespace {

constexpr size_t kMostNamed = 4;  // workers, or parts, in one message

// Every rank's `mine` in the order of the ranks.
std::vector<uint64_t> ValuesOfAll(fabric::Communicator* comm, std::span<const uint64_t> mine,
                                  Status* status) {
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(comm->world()));
  std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * comm->rank());
  *status = comm->AllGather(std::as_writable_bytes(std::span(all)));
  return all;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMostNamed; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMostNamed) text += fmt::format(" and {} more", names.size() - kMostNamed);
  return text;
}

// Returns the ranks that differ from the majority of `values`; all of them if none has one.
std::vector<size_t> OddOnes(const std::map<uint64_t, std::vector<size_t>>& ranks_by_value) {
  size_t total = 0;
  for (const auto& [value, ranks] : ranks_by_value) total += ranks.size();
  std::vector<size_t> odd;
  for (const auto& [value, ranks] : ranks_by_value)
    if (2 * ranks.size() <= total) odd.insert(odd.end(), ranks.begin(), ranks.end());
  std::ranges::sort(odd);
  return odd;
}

}  // namespace

Result<std::string> CompareStates(fabric::Communicator* comm, std::span<const StatePart> parts,
                                  std::span<const std::string> workers) {
  if (comm->world() == 1) return std::string();
  uint64_t of_all = 1;
  for (const StatePart& part : parts) {
    of_all = Hash64(std::as_bytes(std::span(part.name)), of_all);
    of_all = Hash64(std::as_bytes(std::span(&part.hash, 1)), of_all);
  }
  Status status;
  const std::array<uint64_t, 2> own = {parts.size(), of_all};
  const std::vector<uint64_t> seen = ValuesOfAll(comm, own, &status);
  RM_TRY(status);
  std::map<uint64_t, std::vector<size_t>> by_hash;
  std::map<uint64_t, std::vector<size_t>> by_count;
  for (size_t rank = 0; rank < static_cast<size_t>(comm->world()); ++rank) {
    if (seen[2 * rank] == 0) continue;
    by_count[seen[2 * rank]].push_back(rank);
    by_hash[seen[2 * rank + 1]].push_back(rank);
  }
  if (by_hash.size() <= 1) return std::string();

  std::vector<std::string> differ;  // parts
  std::vector<size_t> odd = OddOnes(by_hash);
  if (by_count.size() > 1) {
    odd = OddOnes(by_count);
    differ.push_back("the number of arrays");
  } else {
    std::vector<uint64_t> hashes(by_count.begin()->first);
    for (size_t i = 0; i < parts.size(); ++i) hashes[i] = parts[i].hash;
    const std::vector<uint64_t> all = ValuesOfAll(comm, hashes, &status);
    RM_TRY(status);
    const size_t first = by_count.begin()->second.front();
    for (size_t i = 0; i < hashes.size(); ++i) {
      const auto same = [&](size_t rank) {
        return all[rank * hashes.size() + i] == all[first * hashes.size() + i];
      };
      if (std::ranges::all_of(by_count.begin()->second, same)) continue;
      differ.push_back(i < parts.size() ? parts[i].name : fmt::format("part {}", i));
    }
    if (differ.empty()) differ.push_back("the names of the arrays");
  }
  std::vector<std::string> who;
  for (const size_t rank : odd) who.push_back(fmt::format("{} (rank {})", workers[rank], rank));
  return fmt::format(
      "{} {} in {}", Listed(who),
      2 * odd.size() >= static_cast<size_t>(comm->world()) ? "differ" : "differs from the others",
      Listed(differ));
}

}  // namespace ringmaster::trainer
