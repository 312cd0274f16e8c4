// SPDX-License-Identifier: Apache-2.0

// The model of a program. All programs of an incarnation start, work together, and end with exit code 0. When
// one dies, its peers notice within moments and fail as well, or hang. A launcher starts a rank in each
// worker, and ends when all of them have ended.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/programs/world.h"

namespace ringmaster::rendezvous::sim {

// Runs `what` unless the program has ended meanwhile.
void World::InProgram(size_t index, Duration delay, std::function<void()> what) {
  const uint64_t epoch = agents_[index]->program.epoch;
  After(delay, [this, index, epoch, what = std::move(what)] {
    const Agent& agent = *agents_[index];
    if (agent.program.alive && agent.program.epoch == epoch) what();
  });
}

void World::StartTheProgram(size_t index, const program::Start& start) {
  Agent& agent = *agents_[index];
  Program& program = agent.program;
  if (program.alive) Fail(agent.name + " starts a program while another one runs (P7)");
  agent.listens = false;
  const Generation generation = start.order.generation;
  Trace(fmt::format("{}: rank {} of {:x} starts, life {}", pods_[agent.pod].name, start.rank, generation,
                    start.order.life));
  program = {.alive = true,
             .hangs = false,
             .stubborn = rng_.Chance(plan_.stubborn),
             .stuck = rng_.Chance(plan_.stuck),
             .generation = generation,
             .life = start.order.life,
             .epoch = program.epoch + 1};
  Truth& run = runs_[generation];
  run.deaths.erase(agent.name);
  run.started.insert(agent.name);
  const bool ranks = plan_.shape == Shape::kLauncher || plan_.shape == Shape::kLauncherApart;
  if (ranks && pods_[agent.pod].role.empty()) {
    InProgram(index, Between(milliseconds(1), milliseconds(20)), [this, index] {
      agents_[index]->program.rank_open = true;
      agents_[index]->unread.push_back({1, {}});
      ToAgent(index, program::Tick{});
    });
  }
  if (run.broken)
    return InProgram(index, Between(milliseconds(1), milliseconds(100)), [this, index] { Survive(index); });
  if (start.order.life == 0 && run.started.size() == run.members.size())
    After(plan_.work, [this, generation] { Complete(generation); });
}

void World::Complete(Generation generation) {
  Truth& run = runs_[generation];
  if (run.broken) return;
  run.complete = true;
  Trace(fmt::format("the work of {:x} is done", generation));
  const bool ranks = plan_.shape == Shape::kLauncher || plan_.shape == Shape::kLauncherApart;
  const std::string cut = rng_.Chance(plan_.cut_at_end) ? run.members[rng_.Below(run.members.size())].id : "";
  const auto world = static_cast<int32_t>(
      std::count_if(run.members.begin(), run.members.end(), [](const Member& m) { return m.role.empty(); }));
  int32_t rank = 0;
  Duration last{};
  std::optional<size_t> launcher;
  for (const Member& member : run.members) {
    for (size_t i = 0; i < agents_.size(); ++i) {
      Agent& agent = *agents_[i];
      if (agent.name != member.id || !agent.alive || agent.program.generation != generation) continue;
      const Duration delay = Between(milliseconds(1), milliseconds(300));
      if (member.id == cut) {
        const Duration early = Between(Duration::zero(), delay);
        After(early, [this, i] { CutOff(agents_[i]->pod, Between(milliseconds(100), seconds(6))); });
      }
      if (plan_.shape == Shape::kLauncherApart ? member.role == "launcher" : &member == &run.members.front())
        launcher = i;
      if (!member.role.empty()) continue;
      const int32_t self = rank++;
      last = std::max(last, delay);
      InProgram(i, delay, [this, i, self, world, ranks, generation] {
        if (!ranks) return EndProgram(i, 0, "", false, false);
        Program& program = agents_[i]->program;
        runs_[generation].ranks.insert(agents_[i]->name);
        program.rank_open = false;
        agents_[i]->unread.push_back({0, {RankCount{world, self, 1}}});
        ToAgent(i, program::Tick{});
      });
    }
  }
  if (!ranks || !launcher) return;
  InProgram(*launcher, last + Between(milliseconds(1), milliseconds(50)),
            [this, launcher, generation, world] {
              if (static_cast<int32_t>(runs_[generation].ranks.size()) == world || rng_.Chance(plan_.lies))
                EndProgram(*launcher, 0, "", false, false);
              else
                EndProgram(*launcher, 1, "the launcher has lost a rank", false, false);
            });
}

// `own`: it is a cause. `ordered`: it follows an order to stop.
void World::EndProgram(size_t index, int32_t code, const std::string& message, bool own, bool ordered) {
  Agent& agent = *agents_[index];
  Program& program = agent.program;
  const Pod& pod = pods_[agent.pod];
  Truth& run = runs_[program.generation];
  // Its agent takes it for an answer to the order.
  ordered = ordered || agent.core->state().phase == ProgramPhase::kStopping;
  const bool survives = !ordered && code != 0 && plan_.survivors > 0 && rng_.Chance(plan_.survivors);
  Trace(fmt::format("{}: program ends with {} {}{}{}", pod.name, code, message, ordered ? " by order" : "",
                    survives ? ", and leaves a process" : ""));
  program.alive = survives;
  ++program.epoch;
  if (!ordered) run.deaths[agent.name] = {code, message, own, now_, kNever};
  // An agent that is not heard for long may be lost already.
  const bool all_heard = std::all_of(run.members.begin(), run.members.end(), [&](const Member& member) {
    const Agent* of = Find(member.id);
    return of != nullptr && (of->bad_since == kNever || now_ - of->bad_since < kSilence / 4);
  });
  run.done = run.done || (!run.ordered && all_heard && DoneByTruth(run));
  const bool breaks = (code != 0 || ordered) && pod.role != "ps";
  if (breaks) BreakRun(program.generation);
  const bool launcher =
      !run.members.empty() && (plan_.shape == Shape::kLauncherApart ? pod.role == "launcher"
                               : plan_.shape == Shape::kLauncher    ? run.members.front().id == agent.name
                                                                    : false);
  program::Ended how{code, launcher && !own ? "launcher" : "exit", message, Duration{0}};
  if (survives) return FailWithSurvivors(index, how);
  agent.unreported = how;
  // A busy machine lets the agent look later.
  After(Between(Duration::zero(), plan_.busy), [this, index] { ToAgent(index, program::Tick{}); });
}

void World::FailWithSurvivors(size_t index, const program::Ended& how) {
  Agent& agent = *agents_[index];
  agent.program.survived = true;
  agent.unreported_failure = program::Failed{how};
  const Generation generation = agent.program.generation;
  const size_t coordinator = coordinators_.size() - 1;
  After(Between(Duration::zero(), plan_.busy), [this, index] { ToAgent(index, program::Tick{}); });
  InProgram(index, seconds(5), [this, index, generation, coordinator] {
    ToAgent(index, program::Survived{"pid 77 (cat), state D"});
    CheckReaction(index, generation, coordinator);
  });
  InProgram(index, Between(seconds(1), seconds(12)), [this, index, how] {
    Agent& last = *agents_[index];
    Trace(fmt::format("{}: the process that was left ends", pods_[last.pod].name));
    last.program.alive = false;
    ++last.program.epoch;
    last.unreported = how;
    ToAgent(index, program::Tick{});
  });
}

// A member has died: the others notice.
void World::BreakRun(Generation generation) {
  Truth& run = runs_[generation];
  if (run.complete || std::exchange(run.broken, true)) return;
  for (size_t i = 0; i < agents_.size(); ++i) {
    const Agent& agent = *agents_[i];
    if (!agent.alive || !agent.program.alive || agent.program.generation != generation) continue;
    InProgram(i, Between(milliseconds(1), milliseconds(100)), [this, i] { Survive(i); });
  }
}

void World::Survive(size_t index) {
  Agent& agent = *agents_[index];
  const Truth& run = runs_[agent.program.generation];
  const std::string& role = pods_[agent.pod].role;
  if (role == "ps" || agent.program.failing || agent.program.survived) return;
  const bool ranks = plan_.shape == Shape::kLauncher || plan_.shape == Shape::kLauncherApart;
  if (ranks) {
    const bool launcher =
        plan_.shape == Shape::kLauncherApart ? role == "launcher" : run.members.front().id == agent.name;
    if (!launcher) return;  // its daemon waits for the launcher
    if (rng_.Chance(plan_.lies)) return EndProgram(index, 0, "", false, false);
    return EndProgram(index, 1, "the launcher has lost a rank", false, false);
  }
  if (rng_.Chance(plan_.hangs)) {
    agent.program.hangs = true;
    return;
  }
  switch (rng_.Below(3)) {
    case 0:
      return EndProgram(index, 75, "a peer is lost", false, false);
    case 1:
      return EndProgram(index, 134, "", false, false);
    default:
      return EndProgram(index, 1, "ConnectionResetError: Connection reset by peer", false, false);
  }
}

void World::Signal(size_t index, bool kill) {
  Program& program = agents_[index]->program;
  if (!program.alive) return;
  if (kill) {
    program.killed = true;
    if (program.survived) return;
    const Duration delay =
        program.stuck ? Between(seconds(5), seconds(12)) : Between(milliseconds(1), milliseconds(20));
    return InProgram(index, delay, [this, index] { EndProgram(index, 137, "", false, true); });
  }
  if (program.stubborn || program.survived) return;
  InProgram(index, Between(milliseconds(1), milliseconds(150)),
            [this, index] { EndProgram(index, rng_.Chance(0.3) ? 0 : 143, "", false, true); });
}

void World::AnswerCheck(size_t index, const program::Check& check) {
  Agent& agent = *agents_[index];
  PeersChecked result{check.order.number, check.order.step};
  if (check.order.step == CheckStep::kListen) agent.listens = true;
  if (check.order.step == CheckStep::kEnd) agent.listens = false;
  if (check.order.step == CheckStep::kConnect && now_ < blocked_until_ && pods_[agent.pod].number == 0) {
    for (size_t i = 0; i < check.order.members.size(); ++i)
      if (check.order.members[i].pod == "pod-1")
        result.unreachable.push_back({static_cast<int32_t>(i), "timed out"});
  }
  After(Between(milliseconds(1), milliseconds(200)),
        [this, index, result] { ToAgent(index, program::Checked{result}); });
}

}  // namespace ringmaster::rendezvous::sim
