// SPDX-License-Identifier: Apache-2.0

// The invariants.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tests/sim/programs/world.h"

namespace ringmaster::rendezvous::sim {
namespace {

// An agent that was heard without a pause for so long is known to its coordinator.
constexpr Duration kKnown = 3 * kSilence;

}  // namespace

void World::Fail(const std::string& what) {
  if (!outcome_.ok) return;
  outcome_.ok = false;
  outcome_.violation = what;
  Trace("VIOLATION: " + what);
}

const Agent* World::Find(const std::string& name) const {
  const auto it =
      std::find_if(agents_.begin(), agents_.end(), [&](const auto& a) { return a->name == name; });
  return it == agents_.end() ? nullptr : it->get();
}

bool World::HeardWell(const Agent& agent, Duration for_long) const {
  return CanBeHeard(agent) && agent.bad_since == kNever && now_ - agent.bad_until >= for_long;
}

void World::CheckReaction(size_t index, Generation generation, size_t coordinator) {
  const Agent& agent = *agents_[index];
  const Truth& run = runs_[generation];
  if (ended_ || run.ordered || coordinator + 1 != coordinators_.size() || !HeardWell(agent, seconds(5)))
    return;
  if (pods_[agent.pod].role == "ps" || run.members.empty() || Find(agent.name) == nullptr) return;
  Fail(pods_[agent.pod].name + " has failed long ago, and the gang runs on (P12)");
}

bool World::DoneByTruth(const Truth& run) const {
  const auto succeeded = [&](const Member& member) {
    const auto death = run.deaths.find(member.id);
    return death != run.deaths.end() && death->second.code == 0;
  };
  const bool ranks = plan_.shape == Shape::kLauncher || plan_.shape == Shape::kLauncherApart;
  if (run.members.empty()) return false;
  for (const Member& member : run.members) {
    if (member.role.empty() && ranks && !run.ranks.contains(member.id)) return false;
    if (member.role.empty() && !ranks && !succeeded(member)) return false;
    if (member.role == "launcher" && !succeeded(member)) return false;
  }
  return plan_.shape != Shape::kLauncher || succeeded(run.members.front());
}

void World::CheckPublished(size_t index, const StartProgram& start) {
  Coord& coord = coordinators_[index];
  const auto known = runs_.find(start.generation);
  if (known != runs_.end() && !known->second.members.empty()) {
    // A repetition for an agent on a new connection, or the next life of a rank.
    const bool same = std::equal(start.members.begin(), start.members.end(), known->second.members.begin(),
                                 known->second.members.end(),
                                 [](const Member& a, const Member& b) { return a.id == b.id; });
    if (!same) Fail("an incarnation has two lists of members (P1)");
    if (start.life == 0 && start.generation < coord.published) Fail("an older incarnation is started (P1)");
    return;
  }
  ++outcome_.incarnations;
  if (!runs_.empty() && start.generation < runs_.rbegin()->first)
    Fail("an incarnation has a lower number than an earlier one (P1)");
  for (const auto& agent : agents_) {
    const Program& program = agent->program;
    if (!program.alive || program.generation >= start.generation || !HeardWell(*agent, kKnown)) continue;
    if ((program.stuck || program.survived) && program.killed) continue;  // given up
    Fail(fmt::format("{} still runs a program of an older incarnation (P2)", agent->name));
  }
  if (coord.judged && *coord.judged > coord.allowed) Fail("an incident is not accounted (P6)");
  if (!coord.resumed && coord.published == 0 && plan_.checks_peers && now_ < blocked_until_) {
    const auto has = [&](const std::string& pod) {
      return std::any_of(start.members.begin(), start.members.end(),
                         [&](const Member& m) { return m.pod == pod; });
    };
    if (has("pod-0") && has("pod-1")) Fail("two workers cannot reach each other (P9)");
  }
  if (!runs_.empty() && !disturbed_ && !stop_requested_) {
    const Truth& before = runs_.rbegin()->second;
    // With one member that is not heard, the others show that the work is done.
    const auto heard = std::count_if(before.members.begin(), before.members.end(), [&](const Member& member) {
      const Agent* agent = Find(member.id);
      return agent != nullptr && member.role != "ps" && HeardWell(*agent, kKnown);
    });
    const auto needed = static_cast<std::ptrdiff_t>(before.members.size()) - plan_.servers;
    if (before.done && before.lost.empty() && heard > 0 && heard + 1 >= needed)
      Fail("a job that is done runs again (P3, P11)");
  }
  coord.published = start.generation;
  Truth& run = runs_[start.generation];
  run.members = start.members;
  // P4
  std::map<std::string, int32_t> count;
  std::vector<std::tuple<int, int, int>> order;
  for (const Member& member : start.members) {
    const Agent* agent = Find(member.id);
    if (agent == nullptr) return Fail("an unknown member: " + member.id);
    const Pod& pod = pods_[agent->pod];
    ++count[member.role];
    order.emplace_back(member.role.empty() ? 0 : 1, pod.number, pod.slot);
    if (pod.name != member.pod || pod.role != member.role) Fail("a member has another place (P4)");
  }
  if (!std::is_sorted(order.begin(), order.end())) Fail("ranks are not in the order of pods (P4)");
  if (count[""] < coord.min || count[""] > coord.max)
    Fail(fmt::format("{} workers, not {} to {} (P4)", count[""], coord.min, coord.max));
  if (plan_.servers > 0 && count["ps"] != plan_.servers) Fail("a role is not complete (P4)");
  if (plan_.shape == Shape::kLauncherApart && count["launcher"] != 1) Fail("the launcher is missing (P4)");
}

void World::CheckReport(size_t index) {
  Coord& coord = coordinators_[index];
  const rendezvous::Report& report = coord.core->report();
  if (report.incident && (!coord.judged || report.incident->generation != *coord.judged)) {
    if (coord.judged && report.incident->generation < *coord.judged) Fail("an older incident (P5)");
    coord.judged = report.incident->generation;
    ++outcome_.incidents;
    CheckIncident(*report.incident);
  }
  if (report.worker_failures > coord.failures && report.last_failure) {
    const std::string& evidence = report.last_failure->evidence;
    if (evidence == "eof" || evidence == "silence") CheckLoss(*report.last_failure);
  }
  coord.failures = report.worker_failures;
}

void World::CheckIncident(const Incident& incident) {
  const Truth& run = runs_[incident.generation];
  const FailureRecord& root = incident.root;
  if (root.message.find("but ") != std::string::npos && root.evidence == "launcher") {
    const auto workers =
        std::count_if(run.members.begin(), run.members.end(), [](const Member& m) { return m.role.empty(); });
    if (static_cast<std::ptrdiff_t>(run.ranks.size()) == workers && run.lost.empty() && !disturbed_)
      Fail("all ranks have succeeded, and the launcher is charged (P8, P11)");
    return;
  }
  const Death* death = nullptr;
  for (const Member& member : run.members) {
    const auto it = run.deaths.find(member.id);
    if (member.pod != root.pod || it == run.deaths.end()) continue;
    if (it->second.code == root.exit_code && root.message.starts_with(it->second.message))
      death = &it->second;
  }
  if (death == nullptr) {
    // A program that starts again alone: its end is forgotten with its next life.
    if (root.pod.starts_with("ps-")) return;
    return Fail(
        fmt::format("{} is charged for a failure that did not happen: {} (P5)", root.pod, root.message));
  }
  if (death->code == 0) return Fail("a success is charged (P5)");
  if (death->own) return;
  for (const Member& member : run.members) {
    const Agent* agent = Find(member.id);
    const auto it = run.deaths.find(member.id);
    if (it != run.deaths.end() && it->second.own && member.role != "ps" && agent != nullptr &&
        HeardWell(*agent, kKnown))
      Fail(fmt::format("{} is charged, and the cause is {}: {} (P5)", root.pod, member.pod,
                       it->second.message));
    if (run.lost.contains(member.id) && !disturbed_ && run.deaths.find(member.id) == run.deaths.end() &&
        run.lost_at.at(member.id) < death->at)
      Fail(fmt::format("{} is charged, and {} was lost before (P5)", root.pod, member.pod));
  }
}

void World::CheckLoss(const FailureRecord& record) {
  if (replaced_.contains(record.pod)) return;
  for (const auto& agent : agents_)
    // Or not long ago: a loss is published when the gang has stopped.
    if (pods_[agent->pod].name == record.pod && !HeardWell(*agent, 10 * kSilence)) return;
  // A successor may have found too few members.
  if (record.message.find("some of its peers") != std::string::npos) return;
  Fail(record.pod + " counts as lost, and was heard all the time");
}

void World::CheckEnded(const rendezvous::Report& report) {
  if (report.phase == GangPhase::kFinished) {
    const auto run = runs_.find(report.generation);
    if (run == runs_.end() || !DoneByTruth(run->second))
      Fail("the job is finished, and its work is not done (P3, P8)");
  } else if (report.phase != GangPhase::kStopped || !stop_requested_) {
    Fail("the job has ended without a reason");
  }
}

}  // namespace ringmaster::rendezvous::sim
