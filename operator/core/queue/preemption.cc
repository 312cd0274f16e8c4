// SPDX-License-Identifier: Apache-2.0

#include "operator/core/queue/preemption.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace ringmaster::core {
namespace {

// Whether all pods of the gang find room, as the backend would reserve it, next to `replacements` more pods
// of about its shape.
bool Fits(Capacity& capacity, const RoomQueue::Wait& wait, int32_t replacements) {
  if (capacity.RoomFor(wait.shape, wait.pods, wait.peers) < wait.pods) return false;
  for (const RoomQueue::Need& need : wait.more)
    if (capacity.RoomFor(need.shape, need.pods, wait.peers) < need.pods) return false;
  const auto first = capacity.Unplaced();
  if (wait.more.empty() && first.empty() && replacements == 0) return true;
  // Each shape finds the room that the others leave.
  std::vector<std::string> placed;
  const auto place = [&](const Capacity::Shape& shape, int32_t count) {
    std::vector<std::string> pods;
    for (int32_t i = 0; i < count; ++i)
      pods.push_back(fmt::format("/preemption-{}", placed.size() + pods.size()));
    if (capacity.Reserve(pods, shape)) placed.insert(placed.end(), pods.begin(), pods.end());
  };
  for (const auto& [shape, count] : first) place(shape, capacity.RoomFor(shape, count));
  place(wait.shape, capacity.RoomFor(wait.shape, replacements));
  std::vector<Capacity::Ask> gang;
  const auto ask = [&](const Capacity::Shape& shape, int32_t count) {
    Capacity::Ask& alike = gang.emplace_back();
    alike.shape = shape;
    for (int32_t i = 0; i < count; ++i)
      alike.pods.push_back(fmt::format("/preemption-gang-{}-{}", gang.size(), i));
  };
  for (const RoomQueue::Need& need : wait.Needs()) ask(need.shape, need.pods);
  const bool fits = capacity.Reserve(gang, wait.peers);
  if (fits)
    for (const Capacity::Ask& alike : gang) placed.insert(placed.end(), alike.pods.begin(), alike.pods.end());
  for (const std::string& pod : placed) capacity.Unreserve(pod);
  return fits;
}

// One plan in the making. Takes pods away from the holders, and gives them back.
class Planner {
 public:
  Planner(Capacity& capacity, const RoomQueue::Wait& wait, const std::vector<RoomHolder>& holders)
      : capacity_(capacity), wait_(wait), lifted_(capacity), vacancy_(capacity) {
    for (const RoomHolder& holder : holders) {
      for (const std::string& pod : holder.leaving) vacancy_.Remove(pod);
      if (holder.preemptible && holder.priority < wait.standing.priority)
        candidates_.push_back({&holder, holder.workers, false});
      else
        replacements_ += holder.lost;
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(a.holder->priority, -a.holder->created, a.holder->job) <
             std::tuple(b.holder->priority, -b.holder->created, b.holder->job);
    });
  }

  PreemptionPlan Plan() {
    if (!FitsNow() && (Shrink() || Stop())) Spare();
    PreemptionPlan plan;
    if (!FitsNow()) return plan;
    for (const Candidate& candidate : candidates_) {
      if (candidate.whole || candidate.workers < candidate.holder->workers)
        plan.victims.push_back(
            {candidate.holder->job, candidate.holder->workers, candidate.whole ? 0 : candidate.workers});
      for (const RoomHolder::Place& place : candidate.holder->staying)
        if (Leaves(candidate, place)) plan.leaving.push_back(place.pod);
    }
    return plan;
  }

 private:
  struct Candidate {
    const RoomHolder* holder = nullptr;
    int32_t workers = 0;  // that stay
    bool whole = false;
  };

  bool FitsNow() { return Fits(capacity_, wait_, replacements_); }
  // Whether the pod ends when the job shrinks to its present number of workers. Roles do not shrink.
  static bool Surplus(const Candidate& candidate, const RoomHolder::Place& place) {
    return place.rank >= candidate.workers && place.rank < kRanksPerRole;
  }
  static bool Leaves(const Candidate& candidate, const RoomHolder::Place& place) {
    return candidate.whole || Surplus(candidate, place);
  }
  const RoomHolder::Place* PlaceOf(const Candidate& candidate, int32_t rank) const {
    const auto& staying = candidate.holder->staying;
    const auto it =
        std::lower_bound(staying.begin(), staying.end(), rank,
                         [](const RoomHolder::Place& place, int32_t r) { return place.rank < r; });
    return it != staying.end() && it->rank == rank ? &*it : nullptr;
  }

  // Returns true as soon as the head fits.
  bool Shrink() {
    for (Candidate& candidate : candidates_) {
      while (candidate.workers > candidate.holder->least) {
        candidate.workers -= 1;
        const RoomHolder::Place* place = PlaceOf(candidate, candidate.workers);
        if (place != nullptr && vacancy_.Remove(place->pod) && FitsNow()) return true;
      }
    }
    return false;
  }

  bool Stop() {
    for (Candidate& candidate : candidates_) {
      candidate.whole = true;
      bool any = false;
      for (const RoomHolder::Place& place : candidate.holder->staying)
        any = vacancy_.Remove(place.pod) || any;
      if (any && FitsNow()) return true;
    }
    return false;
  }

  void Spare() {
    for (auto it = candidates_.rbegin(); it != candidates_.rend(); ++it) {
      if (!it->whole) continue;
      it->whole = false;
      for (const RoomHolder::Place& place : it->holder->staying)
        if (!Surplus(*it, place)) vacancy_.Restore(place.pod);
      if (FitsNow()) continue;
      it->whole = true;
      for (const RoomHolder::Place& place : it->holder->staying) vacancy_.Remove(place.pod);
    }
    for (auto it = candidates_.rbegin(); it != candidates_.rend(); ++it) {
      while (!it->whole && it->workers < it->holder->workers) {
        const RoomHolder::Place* place = PlaceOf(*it, it->workers);
        if (place != nullptr) vacancy_.Restore(place->pod);
        if (!FitsNow()) {
          vacancy_.Remove(place->pod);
          break;
        }
        it->workers += 1;
      }
    }
  }

  Capacity& capacity_;
  const RoomQueue::Wait& wait_;
  const Capacity::WithoutClaim lifted_;
  Capacity::Vacancy vacancy_;
  std::vector<Candidate> candidates_;  // in the order in which they make room
  int32_t replacements_ = 0;           // of lost pods, by jobs that make no room
};

}  // namespace

RoomHolder HolderOf(std::string key, const std::string& prefix, const Job& job, const Ledger& ledger,
                    const std::vector<Pod>& pods) {
  RoomHolder holder;
  holder.job = std::move(key);
  const bool stops =
      job.deleted || job.suspend || ledger.suspended || ledger.stop_since || ledger.outcome != Outcome::kNone;
  holder.workers = job.in_place ? job.Target() : ledger.gang_size;
  holder.wanted = job.Wanted();
  holder.preempted = ledger.preemption;
  holder.least = job.in_place ? std::min(job.min, holder.workers) : holder.workers;
  bool runs = false;
  for (const Pod& pod : pods) {
    if (!pod.alive()) continue;
    const std::string name = prefix + pod.name;
    const bool stays =
        !stops && !pod.deleting() && pod.attempt == ledger.attempt && job.HasRank(holder.workers, pod.rank);
    runs = runs || (stays && pod.bound());
    if (stays)
      holder.staying.push_back({pod.rank, name});
    else
      holder.leaving.push_back(name);
  }
  // Those of an elastic job above its minimum wait in the queue.
  const size_t needed = static_cast<size_t>(holder.least + job.RolePods());
  const size_t present = holder.staying.size() + ledger.succeeded.size();
  if (present < needed) holder.missing = static_cast<int32_t>(needed - present);
  if (runs) holder.lost = holder.missing;
  std::sort(holder.staying.begin(), holder.staying.end(),
            [](const RoomHolder::Place& a, const RoomHolder::Place& b) { return a.rank < b.rank; });
  return holder;
}

void RoomHolders::Changed(const std::string& job) {
  if (follows_) changed_.insert(job);
}

std::set<std::string> RoomHolders::TakeChanged(const std::function<std::vector<std::string>()>& all) {
  if (std::exchange(follows_, true)) return std::exchange(changed_, {});
  const std::vector<std::string> jobs = all();
  return {jobs.begin(), jobs.end()};
}

void RoomHolders::Put(const std::string& job, std::optional<RoomHolder> holder) {
  const auto known = index_.find(job);
  if (known != index_.end() && holder) {
    holders_[known->second] = *std::move(holder);
  } else if (known != index_.end()) {
    // The last one takes its place.
    const size_t place = known->second;
    index_.erase(known);
    if (place + 1 < holders_.size()) {
      holders_[place] = std::move(holders_.back());
      index_[holders_[place].job] = place;
    }
    holders_.pop_back();
  } else if (holder) {
    index_.emplace(job, holders_.size());
    holders_.push_back(*std::move(holder));
  }
}

void RoomHolders::Clear() { *this = RoomHolders(); }

bool MayWaitForVictims(const Job& job, const Status& status) {
  const Ledger& ledger = status.ledger;
  return job.preempt && !job.deleted && !job.suspend && !status.ended() && !ledger.placed &&
         !ledger.suspended && !ledger.stop_since;
}

PreemptionPlan PlanPreemption(Capacity& capacity, const std::string& head, const RoomQueue::Wait& wait,
                              const std::vector<RoomHolder>& holders) {
  PreemptionPlan plan;
  int32_t asks = 0;
  for (const RoomQueue::Need& need : wait.Needs()) asks += need.pods;
  // A pod of the head may have ended since it asked. It asks for more at once.
  const bool outdated = std::any_of(holders.begin(), holders.end(), [&](const RoomHolder& holder) {
    return holder.job == head && holder.missing > asks;
  });
  if (wait.preempts && !outdated) plan = Planner(capacity, wait, holders).Plan();
  const auto name = [&](const std::string& job, int32_t had, int32_t workers) {
    plan.text += plan.text.empty() ? "" : ", ";
    plan.text +=
        workers == 0 ? job + " (all workers)" : fmt::format("{} ({} to {} workers)", job, had, workers);
  };
  for (const Victim& victim : plan.victims) name(victim.job, victim.had, victim.workers);
  for (const RoomHolder& holder : holders) {
    const bool asked = std::any_of(plan.victims.begin(), plan.victims.end(),
                                   [&](const Victim& victim) { return victim.job == holder.job; });
    if (holder.preempted && holder.preempted->by == head && !asked)
      name(holder.job, holder.wanted, holder.preempted->workers);
    plan.leaving.insert(plan.leaving.end(), holder.leaving.begin(), holder.leaving.end());
  }
  return plan;
}

}  // namespace ringmaster::core
