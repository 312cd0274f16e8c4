// SPDX-License-Identifier: Apache-2.0

// The faults and their schedule.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/programs/world.h"

namespace ringmaster::rendezvous::sim {

Plan Plan::Draw(SplitMix64& rng) {
  Plan plan;
  plan.shape = static_cast<Shape>(rng.Below(4));
  plan.target = static_cast<int32_t>(1 + rng.Below(4));
  plan.min = static_cast<int32_t>(1 + rng.Below(static_cast<uint64_t>(plan.target)));
  plan.max = plan.target + static_cast<int32_t>(rng.Below(3));
  if (rng.Chance(0.4)) plan.min = plan.max = plan.target;
  const bool launched = plan.shape == Shape::kLauncher || plan.shape == Shape::kLauncherApart;
  if (!launched && rng.Chance(0.2)) plan.slots = 2;
  if (plan.shape == Shape::kServers) plan.servers = static_cast<int32_t>(1 + rng.Below(2));
  plan.work = milliseconds(300 + rng.Below(4000));
  plan.faults_end = milliseconds(1000 + rng.Below(15000));
  plan.busy = rng.Chance(0.5) ? milliseconds(rng.Below(400)) : milliseconds(1);
  plan.stops = rng.Chance(0.1);
  plan.checks_peers = rng.Chance(0.3);
  const auto rate = [&](double chance, int64_t low_ms, int64_t high_ms) {
    if (!rng.Chance(chance)) return Duration::zero();
    return Duration(
        milliseconds(low_ms + static_cast<int64_t>(rng.Below(static_cast<uint64_t>(high_ms - low_ms)))));
  };
  plan.fail = rate(0.5, 500, 6000);
  plan.crash = rate(0.3, 500, 6000);
  plan.kill_agent = rate(0.2, 1000, 8000);
  plan.vanish = rate(0.2, 1000, 8000);
  plan.reset = rate(0.3, 200, 3000);
  plan.cut = rate(0.25, 500, 5000);
  plan.stop_agent = rate(0.2, 500, 5000);
  plan.leader = rate(0.2, 1000, 8000);
  plan.scale = rate(0.15, 1000, 6000);
  plan.leave = rate(0.15, 1000, 6000);
  plan.outage = rng.Chance(0.5) ? milliseconds(rng.Below(800)) : Duration::zero();
  plan.hangs = rng.Chance(0.3) ? 0.3 : 0;
  plan.stubborn = rng.Chance(0.3) ? 0.3 : 0;
  plan.stuck = rng.Chance(0.3) ? 0.3 : 0;
  plan.cut_at_end = rng.Chance(0.3) ? 0.7 : 0;
  plan.lies = launched && rng.Chance(0.5) ? 0.7 : 0;
  plan.survivors = rng.Chance(0.2) ? 0.5 : 0;
  plan.blocked = plan.checks_peers && rng.Chance(0.5) ? 1 : 0;
  return plan;
}

void World::ScheduleFaults() {
  const auto fail = [this](bool crash) {
    const auto index = AnyAgent(true);
    if (!index) return;
    Agent& agent = *agents_[*index];
    if (agent.program.failing || agent.program.survived) return;
    const Generation generation = agent.program.generation;
    const bool ranks = plan_.shape == Shape::kLauncher || plan_.shape == Shape::kLauncherApart;
    // A rank, as opposed to its launcher, and before it has ended.
    if ((ranks || pods_[agent.pod].role == "ps") && runs_[generation].complete) return;
    if (ranks && !pods_[agent.pod].role.empty()) return;
    if (ranks && runs_[generation].members.front().id == agent.name && plan_.shape == Shape::kLauncher)
      return;
    if (crash) return EndProgram(*index, 137, "", true, false);
    const std::string message = fmt::format("ValueError: cause {}", outcome_.faults);
    // Its peers see that its connections are closed, and it takes a while to end.
    agent.program.failing = true;
    if (pods_[agent.pod].role != "ps") BreakRun(generation);
    const size_t i = *index;
    const Duration teardown = ranks ? milliseconds(10) : kTeardown;
    InProgram(i, Between(Duration::zero(), teardown),
              [this, i, message] { EndProgram(i, 1, message, true, false); });
  };
  Repeat(plan_.fail, [fail] { fail(false); });
  Repeat(plan_.crash, [fail] { fail(true); });
  Repeat(plan_.kill_agent, [this] {
    const auto agent = AnyAgent(false);
    if (!agent) return;
    const size_t pod = agents_[*agent]->pod;
    if (rng_.Chance(0.5)) return EndHost(pods_[pod].name);
    EndAgent(*agent, false, true);
    ReplacePod(pod);
  });
  Repeat(plan_.vanish, [this] {
    const auto agent = AnyAgent(false);
    if (!agent) return;
    const std::string pod = pods_[agents_[*agent]->pod].name;
    // All slots of a machine.
    for (size_t i = 0; i < agents_.size(); ++i)
      if (agents_[i]->alive && pods_[agents_[i]->pod].name == pod) EndAgent(i, true, true);
    After(Between(seconds(1), seconds(6)), [this, pod] {
      if (!ended_) EndHost(pod);
    });
  });
  Repeat(plan_.reset, [this] {
    const bool all = rng_.Chance(0.2);
    for (size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i]->link == 0 || !(all || rng_.Below(agents_.size()) == 0)) continue;
      agents_[i]->reset_until = now_ + Between(Duration::zero(), plan_.outage);
      Break(agents_[i]->link, true, true);
    }
  });
  Repeat(plan_.cut,
         [this] { CutOff(rng_.Below(pods_.size()), Between(milliseconds(50), milliseconds(4000))); });
  Repeat(plan_.stop_agent, [this] {
    if (const auto agent = AnyAgent(false)) StopAgent(*agent, Between(milliseconds(50), milliseconds(3000)));
  });
  Repeat(plan_.leader, [this] {
    if (ended_) return;
    disturbed_ = true;
    KillCoordinator(coordinators_.size() - 1);
    const size_t dead = coordinators_.size();
    After(
        rng_.Chance(0.5) ? Between(milliseconds(1), milliseconds(50)) : Between(milliseconds(50), seconds(3)),
        [this, dead] {
          if (coordinators_.size() == dead && !ended_) StartCoordinator();
        });
  });
  Repeat(plan_.scale, [this] { Scale(); });
  Repeat(plan_.leave, [this] { LeaveByPlan(); });
  if (plan_.stops) {
    After(Between(milliseconds(100), plan_.faults_end), [this] {
      stop_requested_ = true;
      Trace("the job is to stop");
      ToCoordinator(coordinators_.size() - 1, RequestStop{});
    });
  }
  At(Time{} + plan_.faults_end, [this] { FaultsOver(); });
}

void World::Repeat(Duration mean, std::function<void()> what) {
  if (mean == Duration::zero()) return;
  After(Between(Duration(1), 2 * mean), [this, mean, what = std::move(what)] {
    if (faults_over_ || ended_) return;
    ++outcome_.faults;
    what();
    Repeat(mean, what);
  });
}

void World::FaultsOver() {
  faults_over_ = true;
  Trace("the faults are over");
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    if (pods_[pod].cut_off) Reconnect(pod);
    if (!pods_[pod].agent) ReplacePod(pod);
  }
}

std::optional<size_t> World::AnyAgent(bool with_program) {
  std::vector<size_t> alive;
  for (size_t i = 0; i < agents_.size(); ++i)
    if (agents_[i]->alive && (!with_program || agents_[i]->program.alive)) alive.push_back(i);
  if (alive.empty()) return std::nullopt;
  return alive[rng_.Below(alive.size())];
}

void World::CutOff(size_t index, Duration duration) {
  Pod& pod = pods_[index];
  if (pod.cut_off || ended_) return;
  pod.cut_off = true;
  const uint64_t cut = ++pod.cuts;
  Trace(pod.name + " is cut off");
  if (pod.agent) NoteHearing(*pod.agent);
  After(duration, [this, index, cut] {
    if (pods_[index].cut_off && pods_[index].cuts == cut) Reconnect(index);
  });
}

// Delivers what waited in the network.
void World::Reconnect(size_t index) {
  pods_[index].cut_off = false;
  Trace(pods_[index].name + " is reached again");
  if (pods_[index].agent) NoteHearing(*pods_[index].agent);
  std::vector<std::function<void()>> held;
  for (auto& [id, link] : links_) {
    if (!link.open || agents_[link.agent]->pod != index) continue;
    for (auto& one : std::exchange(link.held, {})) held.push_back(std::move(one));
  }
  for (const auto& one : held) one();
}

void World::StopAgent(size_t index, Duration duration) {
  Agent& agent = *agents_[index];
  if (agent.stopped) return;
  agent.stopped = true;
  Trace(agent.name + " is stopped");
  NoteHearing(index);
  After(duration, [this, index] {
    Agent& stopped = *agents_[index];
    stopped.stopped = false;
    NoteHearing(index);
    for (const auto& one : std::exchange(stopped.backlog, {})) one();
  });
}

void World::Scale() {
  if (ended_ || coordinators_.empty()) return;
  disturbed_ = true;
  plan_.target =
      plan_.min + static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(plan_.max - plan_.min) + 1));
  Trace(fmt::format("the job has {} workers now", plan_.target));
  int32_t have = 0;
  for (Pod& pod : pods_) {
    if (!pod.role.empty()) continue;
    const bool was = pod.wanted;
    pod.wanted = pod.number < plan_.target;
    have = std::max(have, pod.number + 1);
    if (was && !pod.wanted && pod.agent) ToAgent(*pod.agent, program::Terminate{});
  }
  for (int32_t i = have; i < plan_.target; ++i)
    for (int32_t slot = 0; slot < plan_.slots; ++slot) AddPod("", i, slot);
  for (size_t pod = 0; pod < pods_.size(); ++pod)
    if (pods_[pod].wanted && !pods_[pod].agent) ReplacePod(pod);
  // A job of a fixed size: pods that leave are still there.
  max_ = plan_.target;
  Coord& coord = coordinators_.back();
  coord.max = max_ * plan_.slots;
  ToCoordinator(coordinators_.size() - 1, SetLimits{plan_.min * plan_.slots, plan_.target * plan_.slots,
                                                    max_ * plan_.slots, PolicyOfShape()});
}

void World::LeaveByPlan() {
  const auto agent = AnyAgent(false);
  if (!agent || ended_) return;
  disturbed_ = true;
  Trace(agents_[*agent]->name + " gets SIGTERM");
  ToAgent(*agent, program::Terminate{});
}

}  // namespace ringmaster::rendezvous::sim
