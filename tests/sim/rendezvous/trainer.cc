// SPDX-License-Identifier: Apache-2.0

// The model of a trainer: steps that need all members, commits that differ by at most one step, one undo
// step, a boundary agreed in band, state fetched from sources that may die during the transfer.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/rendezvous/world.h"

namespace ringmaster::rendezvous::sim {

uint64_t Canon(int64_t step) {
  static thread_local std::vector<uint64_t> known = {Mix64(0xca11ab1e)};
  while (known.size() <= static_cast<size_t>(step)) {
    known.push_back(NextContent(known.back(), static_cast<int64_t>(known.size())));
  }
  return known[static_cast<size_t>(step)];
}

uint64_t NextContent(uint64_t content, int64_t next_step) {
  return KeyedRandom(content, static_cast<uint64_t>(next_step));
}

void World::StartTrainer(size_t index, const std::string& id) {
  Trainer& trainer = agents_[index]->trainer;
  const uint64_t epoch = trainer.epoch + 1;
  trainer = Trainer{};
  trainer.epoch = epoch;
  trainer.id = id;
  trainer.mode = Mode::kStarting;
  if (!members_.emplace(id, std::pair(index, epoch)).second) Fail("the id " + id + " was used twice");
  InTrainer(index, Between(milliseconds(5), milliseconds(150)), [this, index](Agent& agent) {
    Pod& pod = pods_[agent.pod];
    if (faults_over_) pod.data = RepairedData();
    if (pod.broken) return FailToStart(index);
    agent.trainer.mode = Mode::kStanding;
    agent.trainer.data = pod.data;
    data_.insert(pod.data);
    FromTrainerTo(index, Join{"",
                              "address-of-" + agent.trainer.id + std::string(plan_.address_bytes, 'x'),
                              {"job", pod.data, "cpu"}});
  });
}

// Most say why; all exit with code 64.
void World::FailToStart(size_t index) {
  if (rng_.Chance(0.7)) FromTrainerTo(index, Fatal{64, "broken"});
  InTrainer(index, Between(Duration(10'000), milliseconds(5)),
            [this, index](Agent&) { EndTrainer(index, 64, true); });
}

// The process ends. `notify`: its agent is alive and notices.
void World::EndTrainer(size_t index, int32_t exit_code, bool notify) {
  Agent& agent = *agents_[index];
  Trainer& trainer = agent.trainer;
  if (trainer.alive()) {
    Trace(fmt::format("{}: trainer {} ends with {}", pods_[agent.pod].name, trainer.id, exit_code));
    agent.trainer_died_at = now_;
    agent.died_with = trainer.state;
    trainer.mode = Mode::kGone;
    trainer.state = {};
    trainer.backlog.clear();
    if (trainer.generation) {
      if (const auto ring = rings_.find(trainer.generation->generation); ring != rings_.end()) {
        BreakRing(ring->first);
        Disturb(index);
      }
    }
  } else if (trainer.epoch == 0 || exit_code == -1) {
    return;
  }
  if (!notify) return;
  const uint64_t epoch = trainer.epoch;
  const auto if_same = [this, index, epoch](MemberEvent event) {
    return [this, index, epoch, event = std::move(event)] {
      if (agents_[index]->trainer.epoch == epoch) ToAgent(index, event);
    };
  };
  const Time noticed = std::max(trainer.last_up, now_) + Between(Duration(50'000), milliseconds(2));
  if (rng_.Chance(0.8)) At(noticed, if_same(TrainerLost{"mutex", ""}));
  At(noticed + Between(milliseconds(1), milliseconds(80)), if_same(TrainerReaped{exit_code}));
}

void World::InTrainer(size_t index, Duration delay, std::function<void(Agent&)> what) {
  const uint64_t epoch = agents_[index]->trainer.epoch;
  After(delay, [this, index, epoch, what = std::move(what)] { RunInTrainer(index, epoch, what); });
}

void World::RunInTrainer(size_t index, uint64_t epoch, const std::function<void(Agent&)>& what) {
  Agent& agent = *agents_[index];
  if (!outcome_.ok || !agent.alive || agent.trainer.epoch != epoch || !agent.trainer.alive()) return;
  if (agent.trainer.stopped) {
    agent.trainer.backlog.push_back([this, index, epoch, what] { RunInTrainer(index, epoch, what); });
    return;
  }
  what(agent);
}

void World::FromTrainerTo(size_t index, Message message) {
  Trainer& trainer = agents_[index]->trainer;
  trainer.last_up = std::max(trainer.last_up, now_) + Between(Duration(5'000), Duration(200'000));
  const uint64_t epoch = trainer.epoch;
  At(trainer.last_up, [this, index, epoch, message = Wire(message)] {
    if (agents_[index]->trainer.epoch == epoch) ToAgent(index, FromTrainer{message});
  });
}

void World::ToTrainer(size_t index, const Message& message) {
  MaybeDieHere(index);
  if (!agents_[index]->trainer.alive()) return;
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    OnPrepare(index, *prepare);
  } else if (const auto* next = std::get_if<NewGeneration>(&message)) {
    OnNewGeneration(index, *next);
  } else if (std::holds_alternative<Exit>(message)) {
    EndTrainer(index, 0, true);
  }
}

void World::OnPrepare(size_t index, const Prepare& prepare) {
  Trainer& trainer = agents_[index]->trainer;
  if (prepare.generation <= trainer.prepared) Fail("a trainer was given an older Prepare");
  trainer.prepared = prepare.generation;
  trainer.prepare = prepare;
  trainer.answered = false;
  if (trainer.deaf || (!faults_over_ && plan_.deaf > 0 && rng_.Chance(plan_.deaf))) {
    trainer.deaf = true;
    trainer.mode = Mode::kStuck;
    Disturb(index);
    return;
  }
  const Generation generation = prepare.generation;
  const bool at_work =
      trainer.mode == Mode::kStepping || trainer.mode == Mode::kFetching || trainer.mode == Mode::kLoading;
  if (prepare.urgency == Urgency::kBoundary && at_work) return;  // its next Enter requests the boundary
  const Duration work =
      plan_.long_steps && prepare.urgency == Urgency::kAbort ? plan_.step_time : milliseconds(6);
  const Duration quiesce = at_work ? Between(Duration(50'000), work) : Duration(20'000);
  InTrainer(index, quiesce, [this, index, generation](Agent&) { Answer(index, generation); });
}

void World::Answer(size_t index, Generation generation) {
  Trainer& trainer = agents_[index]->trainer;
  if (trainer.prepared != generation || trainer.answered || trainer.deaf) return;
  trainer.answered = true;
  trainer.mode = Mode::kStanding;
  if (trainer.state.has && plan_.corrupt > 0 && rng_.Chance(plan_.corrupt)) {
    Trace(trainer.id + " is corrupt");
    trainer.state.content ^= 1ULL << rng_.Below(64);
    corrupted_ = true;
    corrupt_members_.insert(trainer.id);
  }
  if (trainer.state.has) {
    const bool corrupt = trainer.state.content != Canon(trainer.state.step);
    statuses_[generation].push_back({trainer.id, corrupt, trainer.state.step, trainer.data});
    // The state that it can go back to is a witness.
    if (trainer.undo && !corrupt) {
      statuses_[generation].push_back(
          {trainer.id, trainer.undo->content != Canon(trainer.undo->step), trainer.undo->step, trainer.data});
    }
  }
  answered_[generation].insert(trainer.id);
  MemberStatus status;
  status.generation = generation;
  status.has_state = trainer.state.has;
  status.step = trainer.state.step;
  status.can_roll_back = trainer.undo.has_value();
  status.params_hash = trainer.state.content;
  status.optimizer_hash = Mix64(trainer.state.content);
  if (trainer.undo) {
    status.undo_params_hash = trainer.undo->content;
    status.undo_optimizer_hash = Mix64(trainer.undo->content);
  }
  trainer.found_nothing = pods_[agents_[index]->pod].blind;
  if (trainer.prepare->find_checkpoint && !trainer.found_nothing) {
    status.looking = !faults_over_ && plan_.slow_search > 0 && rng_.Chance(plan_.slow_search);
    if (!status.looking) status.checkpoint_step = disk_.step;
  }
  FromTrainerTo(index, status);
  MaybeDieHere(index);
}

void World::OnNewGeneration(size_t index, const NewGeneration& next) {
  Trainer& trainer = agents_[index]->trainer;
  if (!trainer.prepare || !trainer.answered || next.generation != trainer.prepared) {
    Fail(trainer.id + " was given a generation that it did not pause for");
    return;
  }
  const auto me = std::find_if(next.members.begin(), next.members.end(),
                               [&](const Member& member) { return member.id == trainer.id; });
  if (me == next.members.end()) {
    Fail("a trainer was given a generation that it is no member of");
    return;
  }
  trainer.rank = static_cast<size_t>(me - next.members.begin());
  trainer.generation = next;
  trainer.ready = trainer.saved = false;
  trainer.following = -1;
  Ring& ring = rings_[next.generation];
  if (ring.generation.generation == 0) ring.generation = next;
  const bool source = std::find(next.sources.begin(), next.sources.end(),
                                static_cast<int32_t>(trainer.rank)) != next.sources.end();
  if (source) {
    State& state = trainer.state;
    if (state.has && state.step == next.start_step + 1) {
      if (!trainer.undo) {
        Fail(trainer.id + " is to go back a step and cannot");
        return;
      }
      state = *trainer.undo;
      trainer.undo.reset();
    }
    if (!state.has || state.step != next.start_step) {
      Fail(fmt::format("{} is a source of step {} and has {}", trainer.id, next.start_step,
                       state.has ? state.step : -1));
      return;
    }
    Ready(index);
    return;
  }
  if (next.sources.empty() && trainer.rank == static_cast<size_t>(next.loader)) {
    trainer.mode = Mode::kLoading;
    trainer.state = {};
    trainer.undo.reset();
    const Generation generation = next.generation;
    InTrainer(index, Between(milliseconds(5), milliseconds(60)), [this, index, generation](Agent& agent) {
      if (agent.trainer.mode != Mode::kLoading || agent.trainer.generation->generation != generation) return;
      Load(index);
    });
    return;
  }
  // As the first source decides: the state is large, and rank 0 has it.
  const uint64_t draw = KeyedRandom(seed_, next.generation);
  if (!next.fetch_first && next.sources.front() == 0 && next.start_step < plan_.total_steps &&
      draw % 4 != 0) {
    ring.joined_at = std::min(plan_.total_steps, next.start_step + 1 + static_cast<int64_t>(draw / 4 % 5));
    trainer.state = {};
    trainer.undo.reset();
    corrupt_members_.erase(trainer.id);
    trainer.following = next.start_step;
    Ready(index);
    return;
  }
  trainer.mode = Mode::kFetching;
  if (plan_.discards_at_once || corrupt_members_.contains(trainer.id)) {
    trainer.state = {};
    trainer.undo.reset();
  }
  Fetch(index);
}

// Loads the newest checkpoint that its node has, or initializes.
void World::Load(size_t index) {
  Trainer& trainer = agents_[index]->trainer;
  trainer.state = pods_[agents_[index]->pod].blind ? State{true, 0, Canon(0)} : disk_;
  if (trainer.state.step < trainer.generation->checkpoint_floor) {
    trainer.state = {};
    FromTrainerTo(index, Fatal{64, "cannot load the checkpoint"});
    return;
  }
  if (trainer.state.step < coordinators_.back().core->report().checkpoint_step &&
      coordinators_.back().published == trainer.generation->generation)
    Fail("training starts over though a checkpoint is known to exist");
  Ready(index);
}

void World::Fetch(size_t index) {
  Trainer& trainer = agents_[index]->trainer;
  const NewGeneration& next = *trainer.generation;
  const Generation generation = next.generation;
  std::vector<size_t> sources(next.sources.begin(), next.sources.end());
  if (sources.empty()) sources.push_back(static_cast<size_t>(next.loader));
  const auto usable = [this, generation](const std::string& id) -> Trainer* {
    Trainer* source = Find(id);
    if (source == nullptr || !source->ready || !source->state.has) return nullptr;
    if (source->answered && source->prepared != generation) return nullptr;  // it has left the generation
    return source->generation->generation == generation ? source : nullptr;
  };
  std::vector<std::string> choice;
  for (const size_t rank : sources) {
    if (usable(next.members[rank].id) != nullptr) choice.push_back(next.members[rank].id);
  }
  if (choice.empty()) {
    const uint64_t epoch = trainer.epoch;
    rings_[generation].waiting.push_back([this, index, epoch, generation] {
      RunInTrainer(index, epoch, [this, index, generation](Agent& agent) {
        if (agent.trainer.mode != Mode::kFetching || agent.trainer.generation->generation != generation)
          return;
        Fetch(index);
      });
    });
    return;
  }
  const std::string from = choice[rng_.Below(choice.size())];
  const State state = usable(from)->state;
  InTrainer(
      index, Between(milliseconds(1), milliseconds(150)),
      [this, index, generation, from, state, usable](Agent& agent) {
        if (agent.trainer.mode != Mode::kFetching || agent.trainer.generation->generation != generation) {
          return;
        }
        if (usable(from) == nullptr) {  // it died during the transfer: try another
          Fetch(index);
          return;
        }
        agent.trainer.state = state;
        agent.trainer.undo.reset();
        corrupt_members_.erase(agent.trainer.id);
        Ready(index);
      });
  MaybeDieHere(index);
}

// The trainer holds the state of start_step: it begins to step, or stops as requested.
void World::Ready(size_t index) {
  Trainer& trainer = agents_[index]->trainer;
  trainer.ready = true;
  trainer.mode = Mode::kStepping;
  const Generation generation = trainer.generation->generation;
  for (auto& waiting : std::exchange(rings_[generation].waiting, {})) waiting();
  if (trainer.generation->stop) {
    trainer.mode = Mode::kFinal;
    if (trainer.rank == 0) Finish(index);
    return;
  }
  if (trainer.step() >= plan_.total_steps) {
    trainer.mode = Mode::kFinal;
    if (trainer.rank == 0) Finish(index);
    return;
  }
  InTrainer(index, Between(plan_.step_time / 2, plan_.step_time), [this, index, generation](Agent& agent) {
    if (agent.trainer.mode != Mode::kStepping || agent.trainer.generation->generation != generation) return;
    Enter(index);
  });
}

// From now on operations between the members fail: most commits of the step in flight do not arrive, and each
// trainer learns of it some time later.
void World::BreakRing(Generation generation) {
  Ring& ring = rings_[generation];
  if (ring.broken) return;
  ring.broken = true;
  for (const Member& member : ring.generation.members) {
    size_t index = 0;
    if (Find(member.id, &index) == nullptr) continue;
    FailOperation(index, generation, Between(Duration(100'000), milliseconds(40)));
  }
}

// After `delay` the operation in flight fails: the trainer reports it and waits for an order.
void World::FailOperation(size_t index, Generation generation, Duration delay) {
  InTrainer(index, delay, [this, index, generation](Agent& agent) {
    Trainer& trainer = agent.trainer;
    if (trainer.mode != Mode::kStepping || trainer.generation->generation != generation) return;
    trainer.mode = Mode::kStuck;
    Trace(trainer.id + ": an operation failed");
    if (!trainer.answered) return Answer(index, trainer.prepared);
    FromTrainerTo(index,
                  OperationFailed{generation, "",
                                  "an operation failed" + std::string(plan_.odd_text ? 9000 : 0, '\xff')});
  });
}

void World::Disturb(size_t index) { agents_[index]->faulted_at = now_; }

// Contributes gradients to the next step.
void World::Enter(size_t index) {
  Agent& agent = *agents_[index];
  Trainer& trainer = agent.trainer;
  if (pods_[agent.pod].cut_off) {  // what it sends arrives when the network is back
    const uint64_t epoch = trainer.epoch;
    const Generation generation = trainer.generation->generation;
    trainer.backlog.push_back([this, index, epoch, generation] {
      RunInTrainer(index, epoch, [this, index, generation](Agent& a) {
        if (a.trainer.mode == Mode::kStepping && a.trainer.generation->generation == generation) Enter(index);
      });
    });
    return;
  }
  Ring& ring = rings_[trainer.generation->generation];
  const int64_t step = trainer.step() + 1;
  if (ring.step != step) {
    if (ring.step != 0 && (step != ring.step + 1 || ring.entered != ring.generation.members.size())) {
      Fail(fmt::format("members of one generation are at steps {} and {}", step, ring.step));
      return;
    }
    ring.step = step;
    ring.entered = ring.computing = 0;
    ring.boundary = ring.mixed = false;
  }
  if (trainer.following < 0) {
    if (ring.computing++ == 0) ring.content = trainer.state.content;
    ring.mixed = ring.mixed || ring.content != trainer.state.content;
  }
  ring.boundary = ring.boundary || (!trainer.answered && trainer.prepare->urgency == Urgency::kBoundary);
  if (ring.broken)
    FailOperation(index, trainer.generation->generation, Between(milliseconds(1), milliseconds(40)));
  if (++ring.entered < ring.generation.members.size()) return;
  if (ring.mixed) return Diverge(ring);
  const uint64_t content = NextContent(ring.content, step);
  for (const Member& member : ring.generation.members) {
    size_t other = 0;
    if (Find(member.id, &other) == nullptr) continue;
    const Generation generation = ring.generation.generation;
    const bool boundary = ring.boundary;
    InTrainer(other, Between(Duration(50'000), milliseconds(4)),
              [this, other, generation, step, content, boundary](Agent&) {
                Commit(other, generation, step, content, boundary);
              });
  }
}

void World::Commit(size_t index, Generation generation, int64_t step, uint64_t content, bool boundary) {
  Agent& agent = *agents_[index];
  Trainer& trainer = agent.trainer;
  if (trainer.mode != Mode::kStepping || trainer.generation->generation != generation) return;
  if (pods_[agent.pod].cut_off) {  // the sum arrives when the network is back
    const uint64_t epoch = trainer.epoch;
    trainer.backlog.push_back([this, index, epoch, generation, step, content, boundary] {
      RunInTrainer(index, epoch, [this, index, generation, step, content, boundary](Agent&) {
        Commit(index, generation, step, content, boundary);
      });
    });
    return;
  }
  if (rings_[generation].broken && rng_.Chance(0.4)) {
    return FailOperation(index, generation, Duration(20'000));  // part of the sum never arrived
  }
  if (trainer.following >= 0 && step < rings_[generation].joined_at) {
    trainer.following = step;
    AfterCommit(index, generation, step, boundary);
    return;
  }
  trainer.undo = trainer.state;
  if (std::exchange(trainer.following, -1) >= 0) trainer.undo = {true, step - 1, Canon(step - 1)};
  if (plan_.no_undo > 0 && rng_.Chance(plan_.no_undo)) trainer.undo.reset();
  trainer.state = {true, step, content};
  Trace(fmt::format("{} commits step {}", trainer.id, step));
  if (content != Canon(step)) Fail(fmt::format("step {} was committed with another content", step));
  newest_commit_ = std::max(newest_commit_, step);
  StepRecord record;
  record.step = step;
  record.samples = 8;
  record.seconds = plan_.long_steps ? ToSeconds(plan_.step_time) : 0.05;
  record.generation = generation;
  trainer.records.push_back(record);
  if (trainer.rank == 0) {
    if (step % 2 == 0 || step == plan_.total_steps) Report(index, 4);
    if (step % plan_.checkpoint_every == 0) {
      const State snapshot = trainer.state;
      InTrainer(index, Between(milliseconds(2), milliseconds(40)), [this, snapshot](Agent&) {
        if (snapshot.step > disk_.step) disk_ = snapshot;
      });
    }
  }
  AfterCommit(index, generation, step, boundary);
}

// Pauses, ends, or begins the next step.
void World::AfterCommit(size_t index, Generation generation, int64_t step, bool boundary) {
  Trainer& trainer = agents_[index]->trainer;
  MaybeDieHere(index);
  if (!trainer.alive()) return;
  if (boundary) {
    trainer.mode = Mode::kStanding;
    if (!trainer.answered) Answer(index, trainer.prepared);
    return;
  }
  if (step >= plan_.total_steps) {
    trainer.mode = Mode::kFinal;
    if (trainer.rank == 0) Finish(index);
    if (!trainer.answered) Answer(index, trainer.prepared);
    return;
  }
  InTrainer(index, Between(plan_.step_time / 2, plan_.step_time), [this, index, generation](Agent& a) {
    if (a.trainer.mode != Mode::kStepping || a.trainer.generation->generation != generation) return;
    Enter(index);
  });
}

// Rank 0 writes the checkpoint and sends Done.
void World::Finish(size_t index) {
  const Generation generation = agents_[index]->trainer.generation->generation;
  InTrainer(index, Between(milliseconds(2), milliseconds(40)), [this, index, generation](Agent& agent) {
    Trainer& trainer = agent.trainer;
    if (trainer.mode != Mode::kFinal || trainer.generation->generation != generation) return;
    const Ring& ring = rings_[generation];
    const auto ends = [&](const Member& member) {
      const Trainer* other = Find(member.id);
      return other == nullptr || other->mode == Mode::kFinal || other->prepared != generation;
    };
    const std::vector<Member>& members = ring.generation.members;
    if (!std::all_of(members.begin(), members.end(), ends)) {
      if (!ring.broken) return Finish(index);
      trainer.mode = Mode::kStuck;
      if (!trainer.answered) return Answer(index, trainer.prepared);
      FromTrainerTo(index, OperationFailed{generation, "", "the states cannot be compared"});
      return;
    }
    if (StatesDiffer(ring)) return Diverge(ring);
    if (trainer.state.content != Canon(trainer.state.step)) tainted_ = true;  // no other member is left
    if (trainer.state.step > disk_.step) disk_ = trainer.state;
    Done done;
    done.finished = trainer.state.step >= plan_.total_steps;
    done.step = trainer.state.step;
    trainer.saved = true;
    Report(index, 5);
    FromTrainerTo(index, done);
    MaybeDieHere(index);
  });
}

// Whether members that are about to end hold different states.
bool World::StatesDiffer(const Ring& ring) {
  std::set<uint64_t> contents;
  for (const Member& member : ring.generation.members) {
    const Trainer* trainer = Find(member.id);
    if (trainer != nullptr && trainer->mode == Mode::kFinal && trainer->state.has)
      contents.insert(trainer->state.content);
  }
  return contents.size() > 1;
}

// All members learn that their states differ, and wait for a vote.
void World::Diverge(const Ring& ring) {
  const Generation generation = ring.generation.generation;
  for (const Member& member : ring.generation.members) {
    size_t index = 0;
    if (Find(member.id, &index) == nullptr) continue;
    Disturb(index);
    InTrainer(index, Between(Duration(50'000), milliseconds(4)), [this, index, generation](Agent& agent) {
      Trainer& trainer = agent.trainer;
      const bool works = trainer.mode == Mode::kStepping || trainer.mode == Mode::kFinal;
      if (!works || trainer.generation->generation != generation) return;
      trainer.mode = Mode::kStuck;
      if (!trainer.answered) return Answer(index, trainer.prepared);
      OperationFailed failed{generation, "", "the states differ"};
      failed.diverged = true;
      FromTrainerTo(index, failed);
    });
  }
}

void World::Report(size_t index, size_t newest) {
  Trainer& trainer = agents_[index]->trainer;
  Progress progress;
  progress.total_steps = plan_.total_steps;
  if (disk_.step > 0) progress.checkpoint_step = disk_.step;
  while (trainer.records.size() > newest) trainer.records.pop_front();
  progress.records.assign(trainer.records.begin(), trainer.records.end());
  FromTrainerTo(index, progress);
}

Trainer* World::Find(const std::string& member, size_t* index) {
  const auto it = members_.find(member);
  if (it == members_.end()) return nullptr;
  Agent& agent = *agents_[it->second.first];
  if (!agent.alive || agent.trainer.epoch != it->second.second || !agent.trainer.alive()) return nullptr;
  if (index != nullptr) *index = it->second.first;
  return &agent.trainer;
}

}  // namespace ringmaster::rendezvous::sim
