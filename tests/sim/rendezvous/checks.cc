// SPDX-License-Identifier: Apache-2.0

// The invariants.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/rendezvous/world.h"

namespace ringmaster::rendezvous::sim {

namespace {

constexpr Duration kHolderGrace = milliseconds(1500);

}  // namespace

void World::Fail(const std::string& what) {
  if (!outcome_.ok || tainted_) return;
  outcome_.ok = false;
  outcome_.violation = what;
  Trace("VIOLATION: " + what);
  for (const auto& agent : agents_) {
    const Trainer& trainer = agent->trainer;
    if (agent->alive)
      Trace(fmt::format("{} {}: mode {}, step {}, prepared {}.{}, {}", agent->name, trainer.id,
                        static_cast<int>(trainer.mode), trainer.state.has ? trainer.state.step : -1,
                        trainer.prepared >> 32, trainer.prepared & 0xffffffff,
                        trainer.answered ? "answered" : "not answered"));
  }
}

void World::CheckPublished(size_t index, const NewGeneration& next) {
  Coord& coord = coordinators_[index];
  if (next.generation == coord.published) {
    // A repetition for a member on a new connection.
    if (!(rings_[next.generation].generation == next)) Fail("two versions of one generation");
    return;
  }
  ++outcome_.generations;
  Trace(fmt::format("coordinator {} publishes {}.{}", index + 1, next.generation >> 32,
                    next.generation & 0xffffffff));
  if (next.generation < coord.published) Fail("an older generation was published");
  if (const auto ring = rings_.find(next.generation); ring != rings_.end()) {
    // A coordinator with the term of its predecessor cannot know the numbers of members that do not join it.
    if (plan_.same_term > 0) tainted_ = true;
    Fail("a generation was published twice");
    return;
  }
  std::set<std::string> before;
  if (coord.published != 0) {
    for (const Member& member : rings_[coord.published].generation.members) before.insert(member.id);
  }
  const auto size = static_cast<int32_t>(next.members.size());
  if (coord.published != 0 && size < coord.max && !next.stop) CheckResets(rings_[coord.published], next);
  coord.published = next.generation;
  rings_[next.generation].generation = next;
  if (size < coord.min && !next.stop) Fail(fmt::format("{} members, below min {}", size, coord.min));
  if (size > coord.max && !next.stop) Fail(fmt::format("{} members, above max {}", size, coord.max));
  if (next.sources.empty() != (next.start_step < 0)) Fail("sources and start_step do not fit");
  if (!next.fetch_first && (next.stop || static_cast<int32_t>(next.sources.size()) < coord.min))
    Fail("too few members have the state, and training does not wait for the others");
  std::set<std::string> in;
  for (const Member& member : next.members) {
    in.insert(member.id);
    if (!members_.contains(member.id)) {
      Fail("unknown member: " + member.id);
      return;
    }
    if (!answered_[next.generation].contains(member.id)) Fail(member.id + " is a member and has not paused");
    if (coord.evicted.contains(member.id)) Fail(member.id + " was evicted and is a member again");
    if (const auto it = coord.was_member.find(member.id); it != coord.was_member.end() && it->second) {
      Fail(member.id + " was left out and is a member again");
    }
    coord.was_member[member.id] = false;
  }
  for (auto& [id, left_out] : coord.was_member) {
    if (!before.contains(id) || in.contains(id)) continue;
    const Agent& agent = *agents_[members_.at(id).first];
    // A member that left by plan, or that was left out because the generation was full, may return.
    if (size < coord.max && !next.stop && !agent.terminated) left_out = true;
    if (!Reachable(agent)) coord.released.insert(id);
  }

  CheckSameData(next);
  CheckOutvoted(coord, next);

  // A corrupt state shows by comparison with healthy ones of the same step. Without a healthy majority it
  // cannot be detected. Members that died after they answered are no witnesses.
  std::map<int64_t, std::pair<size_t, size_t>> votes;
  for (const ReportedState& state : statuses_[next.generation]) {
    if (state.corrupt) ++votes[state.step].first;
    if (!state.corrupt && in.contains(state.member)) ++votes[state.step].second;
  }
  for (const auto& [step, vote] : votes) {
    if (vote.first > 0 && vote.first >= vote.second) tainted_ = true;
  }
  if (next.start_step >= 0 && next.params_hash != Canon(next.start_step))
    Fail("the vote's hash is not that of the state of start_step");
  // A coordinator with a successor cannot know what the successor's members hold.
  if (index + 1 == coordinators_.size() && !(stop_requested_ && next.stop)) CheckNotLost(coord, next);
}

// A reset costs no worker its place if its agent connects again in time and no other member had a fault.
void World::CheckResets(const Ring& before, const NewGeneration& next) {
  const std::vector<Member>& members = before.generation.members;
  const bool all_well = std::all_of(members.begin(), members.end(), [this](const Member& member) {
    size_t index = 0;
    if (Find(member.id, &index) == nullptr) return false;
    const Agent& agent = *agents_[index];
    // An outage that lasted is a loss. The change that it causes does not wait for others that are away too.
    const bool is_recent = agent.in_outage || now_ - agent.outage_until < seconds(1);
    const bool was_lost = is_recent && now_ - agent.outage_since > milliseconds(450);
    return !agent.stopped && !agent.trainer.stopped && !pods_[agent.pod].cut_off && !was_lost &&
           now_ - agent.faulted_at > seconds(3);
  });
  if (before.broken || !all_well) return;
  for (const Member& member : before.generation.members) {
    size_t index = 0;
    if (std::find(next.members.begin(), next.members.end(), member) != next.members.end()) continue;
    if (Find(member.id, &index) == nullptr) continue;
    const Agent& agent = *agents_[index];
    if (agent.terminated || agent.trainer.doomed || now_ - agent.outage_since > milliseconds(450)) continue;
    Fail(member.id + " was left out because of a reset");
  }
}

bool World::Reachable(const Agent& agent) const {
  return !agent.in_outage && now_ - std::max(agent.outage_until, agent.reset_until) > kMargin;
}

// A committed step is not lost while a live holder is reachable, or may be reachable again soon.
void World::CheckNotLost(const Coord& coord, const NewGeneration& next) {
  if (!next.sources.empty() && next.start_step + 1 < coord.core->report().checkpoint_step) {
    Fail(fmt::format("starts from step {} though a checkpoint is newer", next.start_step));
    return;
  }
  const int64_t from = std::max(next.start_step, next.sources.empty() ? disk_.step : 0);
  for (size_t i = 0; i < agents_.size(); ++i) {
    const Agent& agent = *agents_[i];
    const Trainer& trainer = agent.trainer;
    if (!agent.alive || !trainer.alive() || trainer.stopped || trainer.deaf || !trainer.state.has) continue;
    if (trainer.state.step <= from + (next.sources.empty() ? 0 : 1)) continue;
    const auto out = coord.was_member.find(trainer.id);
    if (out != coord.was_member.end() && out->second) continue;
    if (coord.evicted.contains(trainer.id) || corrupt_members_.contains(trainer.id)) continue;
    // Of two states of one step that differ, neither is known to be the right one, even when only the right
    // one is left: a checkpoint is safe, a guess is not.
    const auto outvoted = coord.outvoted.find(trainer.id);
    if (outvoted != coord.outvoted.end() && outvoted->second.step == trainer.state.step &&
        outvoted->second.params_hash == trainer.state.content)
      continue;
    if (coord.released.contains(trainer.id)) continue;
    if (agent.core->member() != trainer.id) continue;  // its agent treats it as dead
    // The new coordinator cannot know agents that are still connected to its predecessor (leases keep two
    // coordinators from being active).
    if (agent.with_predecessor) continue;
    const bool soon = now_ - agent.outage_since < kHolderGrace - kMargin;
    if (!Reachable(agent) && !soon) continue;
    Fail(fmt::format("generation starts from step {} while {} holds {}", from, trainer.id,
                     trainer.state.step));
    return;
  }
}

// A trainer with state ends only by a fault or by an order, however long the coordinator is away.
void World::CheckMayEnd(const Agent& agent, const std::string& who) {
  const Trainer& trainer = agent.trainer;
  if (!trainer.alive() || !trainer.state.has || trainer.doomed || agent.terminated) return;
  Fail(fmt::format("{} ends {}, which holds step {}", who, trainer.id, trainer.state.step));
}

// I7. Before any state exists, the majority decides.
void World::CheckSameData(const NewGeneration& next) {
  const std::string& data = agents_[members_.at(next.members.front().id).first]->trainer.data;
  for (const Member& member : next.members) {
    size_t index = 0;
    if (Find(member.id, &index) != nullptr && agents_[index]->trainer.data != data && !data.empty())
      Fail("members of one generation have different data");
  }
  if (statuses_.contains(next.generation) || data.empty()) return;  // empty: that trainer has just died
  int32_t same = 0;
  int32_t other = 0;
  for (const std::string& id : answered_[next.generation]) {
    size_t index = 0;
    const Trainer* trainer = Find(id, &index);
    const Agent& agent = *agents_[members_.at(id).first];
    if (trainer == nullptr || trainer->data == data) {
      ++same;
    } else if (Reachable(agent) && !agent.terminated && agent.core->member() == id) {
      ++other;
    }
  }
  if (other > same) Fail("a minority decided which data is right");
}

// Holders of the newest state stay: newcomers may not outvote them.
void World::CheckRefused(const Coord& coordinator, const Evict& evict) {
  const Trainer* trainer = Find(evict.member);
  if (trainer == nullptr || !trainer->state.has || coordinator.prepared.empty()) return;
  if (corrupt_members_.contains(evict.member)) return;
  for (const ReportedState& state : statuses_[coordinator.prepared.rbegin()->first]) {
    if (state.data != trainer->data && state.step + 1 >= trainer->state.step) return;
  }
  // The members of the current generation may have trained further since they answered: a new coordinator has
  // loaded a checkpoint before this trainer could reach it.
  if (const auto ring = rings_.find(coordinator.published); ring != rings_.end()) {
    for (const Member& member : ring->second.generation.members) {
      const Trainer* other = Find(member.id);
      if (other != nullptr && other->state.has && other->data != trainer->data &&
          other->state.step + 1 >= trainer->state.step)
        return;
    }
  }
  Fail(evict.member + " holds the state and was refused");
}

// A member that is well gets the time that it needs to answer: with long steps, a step of its device.
void World::CheckLate(const Coord& coordinator, const Evict& evict) {
  if (evict.reason != "did not answer Prepare in time" || !coordinator.backlog.empty()) return;
  if (plan_.long_steps && coordinator.records_before < 2)
    return;  // it does not know yet how long a step takes
  size_t index = 0;
  const Trainer* trainer = Find(evict.member, &index);
  if (trainer == nullptr || trainer->stopped || trainer->deaf) return;
  const Agent& agent = *agents_[index];
  if (agent.stopped || agent.core->member() != evict.member || pods_[agent.pod].cut_off) return;
  const Duration lately = seconds(3) + 2 * plan_.step_time;
  if (agent.in_outage || now_ - std::max(agent.outage_until, agent.faulted_at) < lately) return;
  if (now_ - std::max(agent.reset_until, continued_at_) < lately) return;
  Fail(evict.member + " was left out as late, though it was well");
}

// A worker's fault ends the job only when no other worker could go on without it.
void World::CheckFailed(const rendezvous::Report& report) {
  const std::string why = report.last_failure.value_or(FailureRecord{}).message;
  const bool undecided = report.failure.find("has a majority") != std::string::npos && data_.size() > 1;
  const bool missing = report.failure.find("is missing") != std::string::npos;
  const bool broken = report.failure.empty() &&
                      (why == "broken" || why == "lost storage" || why.find("64") != std::string::npos);
  if (undecided) return;
  if (!missing && !broken) return Fail("failed: " + report.failure + " " + why);
  for (size_t i = 0; i < agents_.size(); ++i) {
    const Agent& agent = *agents_[i];
    const Trainer& trainer = agent.trainer;
    if (!agent.alive || agent.terminated || agent.with_predecessor || !Reachable(agent)) continue;
    if (!trainer.alive() || trainer.mode == Mode::kStarting || trainer.deaf || trainer.stopped) continue;
    if (agent.core->member() != trainer.id || coordinators_.back().evicted.contains(trainer.id)) continue;
    if (missing && (pods_[agent.pod].blind || trainer.found_nothing)) continue;
    Fail(fmt::format("the job failed ({}{}) though {} could go on", report.failure, why, trainer.id));
    return;
  }
}

// A leaver may exit when another member or the disk has its state.
void World::CheckRelease(size_t index) {
  const Agent& leaver = *agents_[index];
  const State& state = leaver.trainer.state;
  if (!leaver.alive || !leaver.trainer.alive() || !state.has || state.content != Canon(state.step)) return;
  if (leaver.trainer.deaf || leaver.trainer.stopped) return;
  for (const Coord& coord : coordinators_) {
    if (coord.evicted.contains(leaver.trainer.id)) return;  // evicted before
  }
  if (disk_.step >= state.step - 1) return;
  for (size_t i = 0; i < agents_.size(); ++i) {
    if (i == index) continue;
    const Agent& other = *agents_[i];
    // The coordinator may still count on a member that died a moment ago.
    const bool unknown = other.trainer_died_at >= suspended_at_ && now_ - continued_at_ < seconds(3);
    const bool lately = (now_ - other.trainer_died_at < seconds(3) || unknown) && other.died_with.has;
    const State& held = other.trainer.state;
    if (held.has && held.step >= state.step - 1) return;
    if (lately && other.died_with.step >= state.step - 1) return;
  }
  Fail(fmt::format("a{} may leave with the only copy of step {}", index, state.step));
}

// A state that a majority has contradicted stays unusable when that majority has died.
void World::CheckOutvoted(const Coord& coord, const NewGeneration& next) {
  for (const int32_t rank : next.sources) {
    const std::string& id = next.members[static_cast<size_t>(rank)].id;
    const Trainer* trainer = Find(id);
    const auto outvoted = coord.outvoted.find(id);
    if (trainer == nullptr || outvoted == coord.outvoted.end()) continue;
    if (outvoted->second.step == trainer->state.step &&
        outvoted->second.params_hash == trainer->state.content)
      Fail(fmt::format("a state that was outvoted is a source: {} of step {}", id, trainer->state.step));
  }
}

// A new coordinator does not stop the job before it has asked members that take long to find it.
void World::CheckAsked(const Coord& coord) {
  if (coordinators_.size() == 1 || !coord.prepared.empty() || now_ - coord.started > seconds(50)) return;
  for (const auto& agent : agents_) {
    const Trainer& trainer = agent->trainer;
    if (!agent->alive || agent->stopped || agent->terminated || pods_[agent->pod].cut_off) continue;
    if (!trainer.alive() || trainer.stopped || trainer.deaf || trainer.doomed || !trainer.state.has) continue;
    if (corrupt_members_.contains(trainer.id) || agent->core->member() != trainer.id) continue;
    if (disk_.step < trainer.state.step - 1)
      Fail(fmt::format("stopped without asking {}, which has step {}", trainer.id, trainer.state.step));
  }
}

void World::CheckEnded(Coordinator& core) {
  ended_ = true;
  end_phase_ = core.report().phase;
  Trace(fmt::format("ended: phase {}, step {}, disk {}", static_cast<int>(end_phase_), core.report().step,
                    disk_.step));
  if (disk_.content != Canon(disk_.step)) Fail("the checkpoint has another content");
  if (end_phase_ == GangPhase::kFinished) {
    if (disk_.step != plan_.total_steps) Fail("finished without the final checkpoint");
  } else if (end_phase_ == GangPhase::kStopped) {
    if (!stop_requested_) Fail("stopped without an order");
    CheckAsked(coordinators_.back());
    for (const auto& agent : agents_) {
      const State& state = agent->trainer.state;
      if (!agent->alive || !agent->trainer.alive() || !state.has || agent->in_outage) continue;
      if (!Reachable(*agent) || agent->core->member() != agent->trainer.id) continue;
      if (state.content != Canon(state.step) || corrupt_members_.contains(agent->trainer.id)) continue;
      if (agent->trainer.stopped || agent->trainer.deaf || agent->with_predecessor) continue;
      const Coord& coord = coordinators_.back();
      const auto out = coord.was_member.find(agent->trainer.id);
      if (coord.evicted.contains(agent->trainer.id) || (out != coord.was_member.end() && out->second))
        continue;
      if (disk_.step < state.step - 1) {
        Fail(fmt::format("stopped: {} has step {}, the disk {}", agent->trainer.id, state.step, disk_.step));
      }
    }
  } else if (!corrupted_) {
    CheckFailed(core.report());
  }
  // Unreachable agents learn of the end when they reconnect.
  if (!faults_over_) FaultsOver();
}

}  // namespace ringmaster::rendezvous::sim
