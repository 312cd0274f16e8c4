// SPDX-License-Identifier: Apache-2.0

// Checker: the pods of a gang with a topology are in one domain, or in few of them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "operator/core/decide/decide.h"
#include "tests/sim/controller/checker.h"

namespace ringmaster::sim {

using control::Key;

namespace {

// A pod without room in its domain is created again, also when the first requests fail.
constexpr Duration kStrandedLag = seconds(45);

}  // namespace

// The pods of a required topology share one domain. Those of a leader that was deposed take no part.
void Checker::CheckDomain(const JobTruth& job, const core::Pod& pod) {
  if (job.job.topology_required.empty() || job.job.autoscaler || strays_.contains(pod.uid)) return;
  const std::string& domain = world_.nodes().at(pod.node).domain;
  for (const auto& [name, p] : job.pods) {
    if (p.pod.attempt != pod.attempt || !p.pod.bound() || !p.pod.alive() || strays_.contains(p.pod.uid))
      continue;
    const std::string& other = world_.nodes().at(p.pod.node).domain;
    Require(other == domain, "I25", fmt::format("{} is in {} and {} in {}", pod.name, domain, name, other));
  }
}

void Checker::OnReserved(const Key& key, const Placing& placing) {
  CheckTurn(key, placing);
  const std::map<std::string, int32_t>&rooms = placing.rooms, &places = placing.places;
  const JobTruth* job = world_.Find(key);
  if (job == nullptr || job->job.topology_preferred.empty()) return;
  int32_t pods = 0;
  for (const auto& [domain, count] : places) pods += count;
  // Tries all sets of domains.
  std::vector<std::pair<std::string, int32_t>> domains;
  for (const auto& [domain, room] : rooms)
    if (!domain.empty()) domains.emplace_back(domain, room);
  size_t fewest = domains.size() + 1;
  for (uint32_t set = 0; set < (1U << domains.size()); ++set) {
    int32_t room = 0;
    size_t used = 0;
    for (size_t i = 0; i < domains.size(); ++i) {
      if ((set >> i & 1U) == 0) continue;
      room += domains[i].second;
      used += 1;
    }
    if (room >= pods) fewest = std::min(fewest, used);
  }
  if (fewest > domains.size()) return;  // not without nodes that are in no domain
  Require(places.size() <= fewest && !places.contains(""), "I25",
          fmt::format("{} gets its places in {} domains, and {} have room", key.name, places.size(), fewest));
}

// With other jobs around, their reservations may explain why a pod waits.
void Checker::CheckStranded(const JobTruth& job, Shadow& shadow, bool led) {
  std::map<std::string, Time> stranded;
  const core::Ledger& ledger = job.status.ledger;
  const bool wanted = ledger.outcome == core::Outcome::kNone && !ledger.suspended && !ledger.stop_since &&
                      !job.job.deleted && !job.job.suspend && world_.jobs().size() == 1 && led &&
                      !job.job.autoscaler && !job.job.topology_preferred.empty();
  for (const auto& [name, p] : job.pods) {
    const auto room = [&, &p = p](const std::string& node, const NodeTruth& truth) {
      int32_t free = truth.lost_since || truth.cordoned ? 0 : truth.pod_capacity;
      for (const auto& [other, q] : job.pods) free -= q.pod.alive() && q.pod.node == node ? 1 : 0;
      for (const auto& [other, q] : job.strays) free -= q.pod.alive() && q.pod.node == node ? 1 : 0;
      return std::count(p.excluded_nodes.begin(), p.excluded_nodes.end(), node) > 0 ? 0 : free;
    };
    // A pod that the scheduler has not looked at may still fit.
    if (!wanted || p.domain.empty() || p.pod.bound() || p.pod.waiting_reason != core::kUnschedulable ||
        !p.pod.alive() || p.pod.deleting() || p.pod.attempt != ledger.attempt)
      continue;
    int32_t here = 0, elsewhere = 0;
    for (const auto& [node, truth] : world_.nodes())
      (truth.domain == p.domain ? here : elsewhere) += std::max(room(node, truth), 0);
    if (here > 0 || elsewhere == 0) continue;
    const auto since = shadow.stranded_since.find(p.pod.uid);
    stranded[p.pod.uid] = since == shadow.stranded_since.end() ? scheduler_.now() : since->second;
    Require(scheduler_.now() - std::max(stranded[p.pod.uid], world_.term_since()) < kStrandedLag, "I25",
            name + " waits for its domain, and others have room");
  }
  shadow.stranded_since = std::move(stranded);
}

}  // namespace ringmaster::sim
