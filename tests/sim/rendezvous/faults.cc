// SPDX-License-Identifier: Apache-2.0

// The faults and their schedule.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/rendezvous/world.h"

namespace ringmaster::rendezvous::sim {

Plan Plan::Draw(SplitMix64& rng) {
  Plan plan;
  plan.target = static_cast<int32_t>(1 + rng.Below(5));
  plan.min = static_cast<int32_t>(1 + rng.Below(static_cast<uint64_t>(plan.target)));
  plan.max = plan.target + static_cast<int32_t>(rng.Below(3));
  plan.total_steps = static_cast<int64_t>(8 + rng.Below(110));
  plan.checkpoint_every = static_cast<int64_t>(3 + rng.Below(30));
  plan.step_time = milliseconds(10 + rng.Below(60));
  plan.faults_end = milliseconds(500 + rng.Below(6000));
  plan.discards_at_once = rng.Chance(0.5);
  plan.through_codec = rng.Chance(1.0 / 64);
  plan.stops = rng.Chance(0.15);
  const auto rate = [&](double chance, int64_t low_ms, int64_t high_ms) {
    if (!rng.Chance(chance)) return Duration::zero();
    return Duration(
        milliseconds(low_ms + static_cast<int64_t>(rng.Below(static_cast<uint64_t>(high_ms - low_ms)))));
  };
  plan.kill_trainer = rate(0.5, 40, 1500);
  plan.kill_agent = rate(0.35, 100, 2000);
  plan.reset = rate(0.35, 30, 1000);
  plan.partition = rate(0.25, 200, 2000);
  plan.stop_agent = rate(0.2, 300, 2000);
  plan.stop_trainer = rate(0.2, 300, 2000);
  plan.coordinator = rate(0.2, 300, 3000);
  plan.scale = rate(0.3, 150, 1500);
  plan.leave = rate(0.3, 150, 1500);
  plan.kill_at_event = rng.Chance(0.4) ? 0.002 + 0.03 * rng.Uniform() : 0;
  plan.vanish = rate(0.15, 500, 4000);
  plan.deaf = rng.Chance(0.15) ? 0.01 : 0;
  plan.no_undo = rng.Chance(0.2) ? 0.3 : 0;
  plan.corrupt = rng.Chance(0.1) ? 0.05 : 0;
  plan.absence = rate(0.04, 1000, 5000);
  if (plan.absence != Duration::zero()) plan.faults_end += seconds(10 + rng.Below(60));
  plan.suspend = rate(0.08, 500, 4000);
  plan.sever = rate(0.1, 300, 3000);
  plan.reset_outage = rng.Chance(0.5) ? milliseconds(1 + rng.Below(400)) : Duration::zero();
  plan.odd = rng.Chance(0.25) ? 0.1 + 0.3 * rng.Uniform() : 0;
  plan.broken = rng.Chance(0.15) ? 0.1 + 0.3 * rng.Uniform() : 0;
  plan.blind = rng.Chance(0.15) ? 0.1 + 0.6 * rng.Uniform() : 0;
  plan.refused_leave = rng.Chance(0.5);
  if (rng.Chance(0.5)) plan.read_late = milliseconds(rng.Below(900));
  plan.slow_search = rng.Chance(0.1) ? 0.7 : 0;
  if (rng.Chance(0.2)) {
    plan.slots = rng.Chance(0.5) ? 8 : 2;
    plan.target += static_cast<int32_t>(rng.Below(12));
    plan.max = std::max(plan.max, plan.target);
  }
  if (plan.through_codec) plan.address_bytes = 500 + rng.Below(1000);
  if (rng.Chance(0.2)) plan.slow_return = milliseconds(rng.Below(8000));
  plan.change_leader = rng.Chance(0.15) ? 0.02 + 0.3 * rng.Uniform() : 0;
  plan.late_fatal = rng.Chance(0.3) ? 0.5 : 0;
  plan.flip = rate(0.1, 300, 4000);
  plan.odd_text = plan.through_codec && rng.Chance(0.5);
  plan.same_term = rng.Chance(0.1) ? 0.5 : 0;
  plan.long_steps = rng.Chance(0.05);
  if (plan.long_steps) {
    plan.step_time = milliseconds(1000 + rng.Below(1000));
    plan.total_steps = static_cast<int64_t>(6 + rng.Below(10));
    plan.checkpoint_every = static_cast<int64_t>(3 + rng.Below(10));
    plan.faults_end = seconds(10 + rng.Below(15));
    for (Duration* each : {&plan.kill_trainer, &plan.kill_agent, &plan.reset, &plan.partition,
                           &plan.stop_agent, &plan.stop_trainer, &plan.coordinator, &plan.scale, &plan.leave,
                           &plan.vanish, &plan.sever, &plan.flip})
      *each *= 10;
  }
  return plan;
}

void World::ScheduleFaults() {
  Repeat(plan_.kill_trainer, [this] {
    if (const auto agent = AnyAgent()) EndTrainer(*agent, 137, true);
  });
  Repeat(plan_.kill_agent, [this] {
    const auto agent = AnyAgent();
    if (!agent) return;
    if (plan_.slots > 1 && rng_.Chance(0.3))
      EndHost(*agent);
    else
      KillAgent(*agent, 137);
  });
  Repeat(plan_.flip, [this] { FlipMemory(); });
  Repeat(plan_.vanish, [this] {
    // A machine loses power: no FIN, and its pod is replaced under another name.
    const auto agent = AnyAgent();
    if (!agent) return;
    const size_t pod = agents_[*agent]->pod;
    KillAgent(*agent, 137, true);
    if (!pods_[pod].wanted) return;
    pods_[pod].wanted = false;
    AddPod();
  });
  Repeat(plan_.reset, [this] {
    // One connection, or all of them at once (a proxy restarts).
    const bool all = rng_.Chance(0.2);
    for (size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i]->link == 0 || !(all || rng_.Below(agents_.size()) == 0)) continue;
      Break(agents_[i]->link, true, true);
      agents_[i]->reset_until = now_ + Between(Duration::zero(), plan_.reset_outage);
    }
  });
  Repeat(plan_.partition, [this] {
    const Duration duration = Between(milliseconds(20), milliseconds(2500));
    const bool several = rng_.Chance(0.3);
    for (size_t pod = 0; pod < pods_.size(); ++pod) {
      if (several ? rng_.Chance(0.5) : rng_.Below(pods_.size()) == 0) CutOff(pod, duration);
    }
  });
  Repeat(plan_.stop_agent, [this] {
    if (const auto agent = AnyAgent()) StopAgent(*agent, Between(milliseconds(10), milliseconds(2500)));
  });
  Repeat(plan_.stop_trainer, [this] {
    if (const auto agent = AnyAgent()) StopTrainer(*agent, Between(milliseconds(10), milliseconds(2500)));
  });
  Repeat(plan_.coordinator, [this] {
    const size_t old = coordinators_.size() - 1;
    if (!coordinators_[old].alive) return;
    if (rng_.Chance(0.3)) {
      // The new coordinator is active before the old one notices; no agent connects to the old one anymore.
      StartCoordinator();
      std::vector<uint64_t> moved;
      for (auto& [id, link] : links_) {
        if (link.coordinator == old && link.open && rng_.Chance(0.6)) moved.push_back(id);
      }
      for (const uint64_t id : moved) Break(id, true, true);
      for (size_t i = 0; i < agents_.size(); ++i) {
        agents_[i]->with_predecessor = agents_[i]->link != 0;
        Disturb(i);
      }
      After(Between(milliseconds(10), milliseconds(400)), [this, old] { KillCoordinator(old); });
      return;
    }
    KillCoordinator(old);
    After(Between(milliseconds(10), milliseconds(800)), [this] { StartCoordinator(); });
  });
  Repeat(plan_.absence, [this] { Absence(); });
  Repeat(plan_.suspend, [this] { Suspend(); });
  Repeat(plan_.sever, [this] { Sever(); });
  Repeat(plan_.scale, [this] { Scale(); });
  Repeat(plan_.leave, [this] { LeaveByPlan(); });
  if (plan_.stops) After(Between(milliseconds(100), plan_.faults_end), [this] { RequestStopOfJob(); });
  After(plan_.faults_end, [this] { FaultsOver(); });
}

// Poisson-like, until the faults are over or the job has ended.
void World::Repeat(Duration mean, std::function<void()> what) {
  if (mean == Duration::zero()) return;
  After(Between(mean / 10, mean * 2), [this, mean, what = std::move(what)] {
    if (faults_over_ || ended_) return;
    ++outcome_.faults;
    what();
    Repeat(mean, what);
  });
}

void World::FaultsOver() {
  Trace("faults are over");
  faults_over_ = true;
  for (size_t pod = 0; pod < pods_.size(); ++pod) Reconnect(pod);
  for (size_t i = 0; i < agents_.size(); ++i) {
    ContinueAgent(i);
    ContinueTrainer(i);
  }
  for (Pod& pod : pods_) pod.broken = pod.blind = false;
  for (Pod& pod : pods_) pod.wanted = pod.wanted || pod.agent.has_value();
  After(milliseconds(200), [this] { ReplacePods(); });
}

// After the faults all nodes become equal: they get the data of the newest state, or of the majority.
std::string World::RepairedData() const {
  std::map<std::string, std::pair<int64_t, int32_t>> best;  // newest state, number of trainers
  for (const auto& agent : agents_) {
    const Trainer& trainer = agent->trainer;
    if (!agent->alive || !trainer.alive() || trainer.data.empty()) continue;
    auto& [step, count] = best.try_emplace(trainer.data, -1, 0).first->second;
    if (trainer.state.has) step = std::max(step, trainer.state.step);
    ++count;
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto found = std::max_element(best.begin(), best.end(), less);
  return found == best.end() ? "data" : found->first;
}

std::optional<size_t> World::AnyAgent() {
  std::vector<size_t> alive;
  for (size_t i = 0; i < agents_.size(); ++i) {
    if (agents_[i]->alive) alive.push_back(i);
  }
  if (alive.empty()) return std::nullopt;
  return alive[rng_.Below(alive.size())];
}

// At a protocol event: the trainer it happens to, its agent, or a bystander dies.
void World::MaybeDieHere(size_t index) {
  if (faults_over_ || ended_ || plan_.kill_at_event == 0 || !rng_.Chance(plan_.kill_at_event)) return;
  ++outcome_.faults;
  const uint64_t who = rng_.Below(4);
  if (who == 0) {
    KillAgent(index, 137);
  } else if (who == 1) {
    if (const auto other = AnyAgent()) EndTrainer(*other, 137, true);
  } else {
    EndTrainer(index, 137, true);
  }
}

void World::CutOff(size_t pod, Duration duration) {
  if (pods_[pod].cut_off) return;
  Trace(pods_[pod].name + " is cut off");
  pods_[pod].cut_off = true;
  const uint64_t cut = ++pods_[pod].cuts;
  const auto cut_agent = pods_[pod].agent;
  if (cut_agent) {
    SetOutage(*cut_agent, true);
    Disturb(*cut_agent);
  }
  // TCP times out on the agent's side; the coordinator's side stays half open.
  After(milliseconds(1200), [this, pod, cut, cut_agent] {
    if (!pods_[pod].cut_off || pods_[pod].cuts != cut || !cut_agent) return;
    if (agents_[*cut_agent]->link != 0) Break(agents_[*cut_agent]->link, false, true);
  });
  After(duration, [this, pod, cut] {
    if (pods_[pod].cuts == cut) Reconnect(pod);
  });
  FailLate(pod, duration);
}

void World::Reconnect(size_t pod) {
  if (!pods_[pod].cut_off) return;
  Trace(pods_[pod].name + " is back on the network");
  pods_[pod].cut_off = false;
  if (!pods_[pod].agent) return;
  const size_t index = *pods_[pod].agent;
  Agent& agent = *agents_[index];
  SetOutage(index, agent.stopped);
  Disturb(index);
  if (agent.link != 0) {
    for (auto& held : std::exchange(links_[agent.link].held, {})) held();
  }
  if (!agent.trainer.stopped) {
    for (auto& late : std::exchange(agent.trainer.backlog, {})) late();
  }
}

void World::StopAgent(size_t index, Duration duration) {
  if (agents_[index]->stopped) return;
  Trace(fmt::format("agent a{} is stopped", index));
  agents_[index]->stopped = true;
  Disturb(index);
  SetOutage(index, true);
  After(duration, [this, index] { ContinueAgent(index); });
}

void World::ContinueAgent(size_t index) {
  Agent& agent = *agents_[index];
  if (!agent.stopped) return;
  Trace(fmt::format("agent a{} continues", index));
  agent.stopped = false;
  Disturb(index);
  SetOutage(index, pods_[agent.pod].cut_off);
  for (auto& late : std::exchange(agent.backlog, {})) late();
  ToAgent(index, Tick{});
}

void World::StopTrainer(size_t index, Duration duration) {
  Trainer& trainer = agents_[index]->trainer;
  if (trainer.stopped || !trainer.alive()) return;
  Trace(trainer.id + " is stopped");
  trainer.stopped = true;
  Disturb(index);
  const uint64_t epoch = trainer.epoch;
  After(duration, [this, index, epoch] {
    if (agents_[index]->trainer.epoch == epoch) ContinueTrainer(index);
  });
  // In most cases the agent detects the stopped trainer.
  if (rng_.Chance(0.3)) return;
  After(milliseconds(300), [this, index, epoch] {
    Agent& agent = *agents_[index];
    if (agent.trainer.epoch == epoch && agent.trainer.stopped && agent.trainer.alive()) {
      agent.trainer.doomed = true;
      ToAgent(index, TrainerLost{"stopped", ""});
    }
  });
}

void World::ContinueTrainer(size_t index) {
  Trainer& trainer = agents_[index]->trainer;
  if (!trainer.stopped) return;
  Trace(trainer.id + " continues");
  trainer.stopped = false;
  Disturb(index);
  for (auto& late : std::exchange(trainer.backlog, {})) late();
}

void World::Scale() {
  if (!coordinators_.back().alive || coordinators_.back().suspended || stop_requested_) return;
  plan_.target = static_cast<int32_t>(1 + rng_.Below(6));
  if (rng_.Chance(0.5)) plan_.min = static_cast<int32_t>(1 + rng_.Below(static_cast<uint64_t>(plan_.target)));
  plan_.min = std::min(plan_.min, plan_.target);
  plan_.max = std::max(plan_.target, plan_.target + static_cast<int32_t>(rng_.Below(2)));
  Trace(fmt::format("scaled to {} (min {}, max {})", plan_.target, plan_.min, plan_.max));
  Coord& coord = coordinators_.back();
  coord.min = plan_.min;
  coord.max = plan_.max;
  ToCoordinator(coordinators_.size() - 1, SetLimits{plan_.min, plan_.target, plan_.max});
  int32_t wanted = 0;
  for (const Pod& pod : pods_) wanted += pod.wanted ? 1 : 0;
  for (; wanted < plan_.target; ++wanted) {
    AddPod();
    After(Between(milliseconds(1), milliseconds(200)), [this] { ReplacePods(); });
  }
  if (rng_.Chance(0.3)) return;  // surplus pods stay as standbys
  for (size_t pod = pods_.size(); pod-- > 0 && wanted > plan_.target;) {
    if (!pods_[pod].wanted) continue;
    pods_[pod].wanted = false;
    --wanted;
    if (pods_[pod].agent) {
      agents_[*pods_[pod].agent]->terminated = true;
      ToAgent(*pods_[pod].agent, Terminate{});
    }
  }
}

// A drain: SIGTERM and a replacement pod; sometimes for all pods at once.
void World::LeaveByPlan() {
  const bool all = rng_.Chance(0.1);
  for (size_t i = 0; i < agents_.size(); ++i) {
    Agent& agent = *agents_[i];
    if (!agent.alive || agent.terminated || !(all || rng_.Below(agents_.size()) == 0)) continue;
    Trace(fmt::format("agent a{} is asked to leave", i));
    agent.terminated = true;
    ToAgent(i, Terminate{});
  }
}

// The machine of the coordinator is lost and takes long to replace.
void World::Absence() {
  const size_t old = coordinators_.size() - 1;
  if (!coordinators_[old].alive) return;
  KillCoordinator(old);
  const Duration away = Between(seconds(5), seconds(240));
  absent_until_ = now_ + away;
  After(away, [this] { StartCoordinator(); });
}

// SIGSTOP: its sockets stay open. On SIGCONT its timers are served before its sockets, sometimes long before:
// other jobs keep it busy.
void World::Suspend() {
  const size_t index = coordinators_.size() - 1;
  if (!coordinators_[index].alive || coordinators_[index].suspended) return;
  Trace("the coordinator is suspended");
  coordinators_[index].suspended = true;
  suspended_at_ = now_;
  for (size_t i = 0; i < agents_.size(); ++i) Disturb(i);
  After(Between(milliseconds(5), seconds(20)), [this, index] {
    Trace("the coordinator continues");
    coordinators_[index].suspended = false;
    continued_at_ = now_;
    ToCoordinator(index, TimePassed{});
    After(Between(Duration::zero(), plan_.read_late), [this, index] { Drain(index); });
  });
}

// The network between the trainers fails for a moment; the one to the coordinator does not.
void World::Sever() {
  if (rings_.empty()) return;
  Trace("operations between trainers fail");
  BreakRing(rings_.rbegin()->first);
}

void World::RequestStopOfJob() {
  if (ended_) return;
  Trace("stop requested");
  stop_requested_ = true;
  ToCoordinator(coordinators_.size() - 1, RequestStop{});
  MaybeChangeLeader();
}

// All processes of a pod end, and the controller notices it before their connections do.
void World::EndHost(size_t agent) {
  const std::string host = pods_[agents_[agent]->pod].host;
  for (size_t i = 0; i < agents_.size(); ++i)
    if (agents_[i]->alive && pods_[agents_[i]->pod].host == host) KillAgent(i, 137, true);
  ToCoordinator(coordinators_.size() - 1, PodEnded{host});
}

// In any phase of the job: its leader ends after it has given an order, or before it can record a result.
void World::MaybeChangeLeader() {
  if (faults_over_ || ended_ || plan_.change_leader == 0 || !rng_.Chance(plan_.change_leader)) return;
  ++outcome_.faults;
  const size_t old = coordinators_.size() - 1;
  After(Between(Duration::zero(), milliseconds(3)), [this, old] {
    if (ended_ || !coordinators_[old].alive || old + 1 != coordinators_.size()) return;
    KillCoordinator(old);
    After(Between(milliseconds(10), milliseconds(800)), [this] { StartCoordinator(); });
  });
}

// A trainer whose pod is cut off, and without which the job has continued, cannot reach its storage either.
// Its agent reports that when the network is back.
void World::FailLate(size_t pod, Duration duration) {
  if (plan_.late_fatal == 0 || !pods_[pod].agent || !rng_.Chance(plan_.late_fatal)) return;
  const size_t index = *pods_[pod].agent;
  const uint64_t epoch = agents_[index]->trainer.epoch;
  After(duration * 9 / 10, [this, pod, index, epoch] {
    Agent& agent = *agents_[index];
    Trainer& trainer = agent.trainer;
    if (!pods_[pod].cut_off || !agent.alive || !trainer.alive() || trainer.epoch != epoch) return;
    const auto& was_member = coordinators_.back().was_member;
    const auto out = was_member.find(trainer.id);
    if (out == was_member.end() || !out->second || trainer.stopped) return;
    ++outcome_.faults;
    trainer.doomed = true;
    FromTrainerTo(index, Fatal{64, "lost storage"});
    InTrainer(index, milliseconds(1), [this, index](Agent&) { EndTrainer(index, 64, true); });
  });
}

// Of three members or more, so that the others are a majority.
void World::FlipMemory() {
  if (rings_.empty()) return;
  std::vector<Trainer*> healthy;
  for (const Member& member : rings_.rbegin()->second.generation.members) {
    Trainer* trainer = Find(member.id);
    if (trainer != nullptr && trainer->mode == Mode::kStepping && trainer->state.has &&
        trainer->state.content == Canon(trainer->state.step))
      healthy.push_back(trainer);
  }
  if (healthy.size() < 3) return;
  Trainer& trainer = *healthy[rng_.Below(healthy.size())];
  Trace("memory of " + trainer.id + " changes");
  trainer.state.content ^= 1ULL << rng_.Below(64);
  corrupted_ = true;
  corrupt_members_.insert(trainer.id);
}

}  // namespace ringmaster::rendezvous::sim
