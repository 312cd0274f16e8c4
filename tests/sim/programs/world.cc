// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/programs/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace ringmaster::rendezvous::sim {
namespace {

constexpr Duration kTimeLimit = seconds(150);  // after the faults: enough for every deadline in a row

}  // namespace

World::World(uint64_t seed, bool trace) : seed_(seed), trace_(trace), rng_(Mix64(seed ^ 0x9709)) {
  plan_ = Plan::Draw(rng_);
  max_ = plan_.max;
}

Outcome World::Run() {
  for (int32_t i = 0; i < plan_.target; ++i)
    for (int32_t slot = 0; slot < plan_.slots; ++slot) AddPod("", i, slot);
  if (plan_.shape == Shape::kLauncherApart) AddPod("launcher", 0, 0);
  for (int32_t i = 0; i < plan_.servers; ++i) AddPod("ps", i, 0);
  if (plan_.blocked > 0 && rng_.Chance(plan_.blocked))
    blocked_until_ = now_ + Between(seconds(1), seconds(6));
  StartCoordinator();
  for (size_t pod = 0; pod < pods_.size(); ++pod)
    After(Between(milliseconds(0), milliseconds(500)), [this, pod] { StartAgent(pod); });
  ScheduleFaults();
  Time instant = kNever;
  int in_instant = 0;
  while (outcome_.ok && !queue_.empty()) {
    Item item = std::move(const_cast<Item&>(queue_.top()));
    queue_.pop();
    now_ = item.at;
    if (now_ > Time{} + plan_.faults_end + kTimeLimit) {
      Fail("stuck: the job does not end although all faults are over");
      break;
    }
    if (item.at != instant) {
      instant = item.at;
      in_instant = 0;
    }
    if (++in_instant > 20'000) Fail("livelock: an event repeats without time passing");
    ++outcome_.events;
    item.what();
    const bool gone = std::none_of(agents_.begin(), agents_.end(), [](const auto& a) { return a->alive; });
    if (ended_ && gone) break;
  }
  if (outcome_.ok && !ended_) Fail("nothing is left to happen");
  outcome_.end = now_;
  return outcome_;
}

void World::At(Time when, std::function<void()> what) { queue_.push({when, ++order_, std::move(what)}); }

Duration World::Between(Duration low, Duration high) {
  return low + Duration(static_cast<int64_t>(rng_.Below(static_cast<uint64_t>((high - low).count()) + 1)));
}

void World::Trace(const std::string& text) {
  if (trace_) std::printf("%10.3f ms  %s\n", ToSeconds(now_ - Time{}) * 1e3, text.c_str());
}

// ---- coordinators

ProgramPolicy World::PolicyOfShape() const {
  ProgramPolicy policy;
  policy.backoff_initial = milliseconds(100);
  policy.backoff_max = seconds(1);
  policy.max_restarts = 3;
  policy.counts_ranks = plan_.shape == Shape::kLauncher || plan_.shape == Shape::kLauncherApart;
  if (plan_.shape == Shape::kLauncher) policy.decider = ProgramPolicy::Decider::kFirst;
  if (plan_.shape == Shape::kLauncherApart) {
    policy.decider = ProgramPolicy::Decider::kRole;
    policy.decider_role = "launcher";
    policy.roles = {{"launcher"}};
  }
  if (plan_.servers > 0) policy.roles = {{"ps", plan_.servers, ProgramRestart::kAlone, false}};
  return policy;
}

void World::StartCoordinator() {
  CoordinatorOptions options;
  options.job = "default/job";
  options.min = plan_.min;
  options.target = plan_.target;
  options.max = max_;
  for (int32_t* limit : {&options.min, &options.target, &options.max}) *limit *= plan_.slots;
  options.slots = plan_.slots;
  options.term = static_cast<uint32_t>(coordinators_.size() + 1);
  options.resumed = !coordinators_.empty();
  options.silence_limit = kSilence;
  ProgramOptions& programs = options.programs.emplace();
  programs.stop_grace = seconds(2);
  programs.failure_grace = seconds(1);
  programs.rank_grace = milliseconds(500);
  programs.end_limit = kEndLimit;
  programs.consequence_window = kTeardown + milliseconds(100);
  programs.stop_margin = seconds(2);
  programs.growth_window = seconds(3);
  programs.last_call = seconds(1);
  programs.adoption_grace = seconds(4);
  programs.check_limit = seconds(1);
  programs.check_pause = milliseconds(500);
  programs.accounted = accounted_;
  programs.policy = PolicyOfShape();
  Coord coord;
  coord.core = std::make_unique<ProgramCoordinator>(options);
  coord.resumed = options.resumed;
  coord.allowed = accounted_;
  coord.min = options.min;
  coord.max = options.max;
  coordinators_.push_back(std::move(coord));
  Trace(fmt::format("coordinator {} starts", coordinators_.size()));
  const size_t index = coordinators_.size() - 1;
  ToCoordinator(index, TimePassed{});
  if (stop_requested_) ToCoordinator(index, RequestStop{});
}

void World::KillCoordinator(size_t index) {
  if (!coordinators_[index].alive) return;
  coordinators_[index].alive = false;
  Trace(fmt::format("coordinator {} dies", index + 1));
  for (auto& [id, link] : links_)
    if (link.coordinator == index && link.open) Break(id, false, true);
}

void World::ToCoordinator(size_t index, const CoordinatorEvent& event) {
  if (!coordinators_[index].alive || !outcome_.ok) return;
  coordinators_[index].core->On(event, now_);
  Perform(index);
}

void World::Perform(size_t index) {
  ProgramCoordinator& core = *coordinators_[index].core;
  bool changed = false;
  std::vector<ConnectionId> asked;
  for (CoordinatorOutput& output : core.Take()) {
    if (auto* send = std::get_if<SendTo>(&output)) {
      for (const ConnectionId to : send->connections) PerformSend(index, to, *send->message);
    } else if (const auto* ask = std::get_if<AskArrival>(&output)) {
      asked.push_back(ask->connection);
    } else if (const auto* close = std::get_if<CloseConnection>(&output)) {
      if (links_[close->connection].open) Break(close->connection, false, true);
    } else if (const auto* line = std::get_if<EventLine>(&output)) {
      Trace("  -- " + line->text);
    } else if (std::holds_alternative<ReportChanged>(output)) {
      changed = true;
    }
  }
  if (changed && outcome_.ok) Control(index);
  for (const ConnectionId id : asked) ToCoordinator(index, LastArrival{id, links_[id].arrived});
  const Time wake = core.next_wakeup();
  Coord& coord = coordinators_[index];
  if (wake == kNever || wake == coord.wake_at) return;
  coord.wake_at = wake;
  At(std::max(wake, now_), [this, index, wake] {
    if (coordinators_[index].wake_at != wake) return;
    coordinators_[index].wake_at = kNever;
    ToCoordinator(index, TimePassed{});
  });
}

void World::PerformSend(size_t index, ConnectionId to, const Message& message) {
  if (const auto* start = std::get_if<StartProgram>(&message)) CheckPublished(index, *start);
  if (const auto* stop = std::get_if<StopProgram>(&message)) runs_[stop->generation].ordered = true;
  if (std::holds_alternative<CheckPeers>(message)) coordinators_[index].checked = true;
  Send(to, false, message);
}

// The model of the controller: it accounts incidents and replaces pods.
void World::Control(size_t index) {
  CheckReport(index);
  const rendezvous::Report& report = coordinators_[index].core->report();
  if (report.phase >= GangPhase::kStopped) {
    if (!std::exchange(ended_, true)) CheckEnded(report);
    return;
  }
  if (report.incident && report.incident->generation > accounted_) {
    const Generation generation = report.incident->generation;
    After(Between(milliseconds(1), milliseconds(200)), [this, generation] {
      accounted_ = std::max(accounted_, generation);
      const size_t active = coordinators_.size() - 1;
      coordinators_[active].allowed = accounted_;
      ToCoordinator(active, AllowRestart{generation});
    });
  }
  for (const std::string& name : report.silent_pods) {
    After(Between(milliseconds(50), milliseconds(500)), [this, name] {
      const rendezvous::Report& newest = coordinators_.back().core->report();
      const auto& silent = newest.silent_pods;
      if (!ended_ && std::find(silent.begin(), silent.end(), name) != silent.end()) EndHost(name);
    });
  }
}

// ---- agents

void World::AddPod(const std::string& role, int32_t number, int32_t slot) {
  Pod& pod = pods_.emplace_back();
  pod.role = role;
  pod.number = number;
  pod.slot = slot;
  pod.name = fmt::format("{}-{}", role.empty() ? "pod" : role, number);
}

void World::StartAgent(size_t index) {
  Pod& pod = pods_[index];
  if (pod.agent || !pod.wanted || ended_) return;
  auto agent = std::make_unique<Agent>();
  agent->pod = index;
  agent->name = "a" + std::to_string(agents_.size());
  ProgramMemberOptions options;
  options.hello.job = "default/job";
  options.hello.pod = pod.name;
  options.hello.agent = agent->name;
  options.hello.slot = pod.slot;
  options.hello.role = pod.role;
  options.hello.checks_peers = plan_.checks_peers;
  options.stop_grace = seconds(2);
  options.leave_patience = seconds(1);
  options.exit_limit = seconds(2);
  agent->core = std::make_unique<ProgramMemberCore>(options);
  agent->bad_since = now_;
  pod.agent = agents_.size();
  agents_.push_back(std::move(agent));
  Trace(fmt::format("{}: agent {} starts", pod.name, agents_.back()->name));
  ToAgent(*pod.agent, program::Started{});
}

// `silently`: its machine loses power. The program dies with its agent in any case.
void World::EndAgent(size_t index, bool silently, bool program_ends) {
  Agent& agent = *agents_[index];
  if (!agent.alive) return;
  Pod& pod = pods_[agent.pod];
  Trace(fmt::format("{}: agent {} ends{}", pod.name, agent.name, silently ? " silently" : ""));
  const Generation generation = agent.core->state().generation;
  const ProgramPhase phase = agent.core->state().phase;
  agent.alive = false;
  agent.backlog.clear();
  if (agent.link != 0) Break(agent.link, !silently, false);
  NoteHearing(index);
  replaced_.insert(pod.name);
  if (generation != 0 && phase != ProgramPhase::kIdle) {
    Truth& run = runs_[generation];
    run.lost.insert(agent.name);
    run.lost_at[agent.name] = now_;
    if (program_ends && agent.program.alive && pod.role != "ps") BreakRun(generation);
  }
  agent.program.alive = false;
  ++agent.program.epoch;
  pod.agent.reset();
}

// A new agent takes the place, in the same pod or in another one of its name.
void World::ReplacePod(size_t index) {
  After(Between(milliseconds(50), milliseconds(600)), [this, index] { StartAgent(index); });
}

void World::EndHost(const std::string& name) {
  for (size_t i = 0; i < pods_.size(); ++i) {
    if (pods_[i].name != name) continue;
    if (pods_[i].cut_off) Reconnect(i);
    if (pods_[i].agent) EndAgent(*pods_[i].agent, false, true);
    ReplacePod(i);
  }
  ToCoordinator(coordinators_.size() - 1, PodEnded{name});
}

void World::ToAgent(size_t index, program::Event event) {
  Agent& agent = *agents_[index];
  if (!agent.alive || !outcome_.ok) return;
  if (agent.stopped) {
    agent.backlog.push_back([this, index, event = std::move(event)] { ToAgent(index, event); });
    return;
  }
  // The agent hears its ranks and collects its children before it reads its connection.
  for (program::Ranks& ranks : std::exchange(agent.unread, {})) agent.core->On(std::move(ranks), now_);
  if (const auto failed = std::exchange(agent.unreported_failure, std::nullopt)) {
    runs_[agent.core->state().generation].deaths[agent.name].reported = now_;
    agent.core->On(*failed, now_);
    PerformCommands(index);
    if (!agent.alive) return;
  }
  if (const auto ended = std::exchange(agent.unreported, std::nullopt)) {
    const auto truth = runs_[agent.core->state().generation].deaths.find(agent.name);
    if (truth != runs_[agent.core->state().generation].deaths.end()) truth->second.reported = now_;
    agent.core->On(*ended, now_);
    PerformCommands(index);
    if (!agent.alive) return;
  }
  agent.core->On(event, now_);
  PerformCommands(index);
}

void World::PerformCommands(size_t index) {
  Agent& agent = *agents_[index];
  for (program::Command& command : agent.core->Take()) {
    if (!agent.alive) return;
    if (std::holds_alternative<program::Connect>(command)) {
      OpenLink(index);
    } else if (auto* up = std::get_if<program::Send>(&command)) {
      if (auto* state = std::get_if<ProgramState>(&up->message)) {
        // The real agent names the port of its next program.
        if (state->address.empty()) state->address = fmt::format("10.0.0.{}:{}", agent.pod, agents_.size());
      }
      Send(agent.link, true, std::move(up->message));
    } else if (const auto* start = std::get_if<program::Start>(&command)) {
      StartTheProgram(index, *start);
    } else if (const auto* check = std::get_if<program::Check>(&command)) {
      AnswerCheck(index, *check);
    } else if (const auto* signal = std::get_if<program::Signal>(&command)) {
      Signal(index, signal->kill);
    } else if (std::holds_alternative<program::Exit>(command)) {
      const size_t pod = agent.pod;
      EndAgent(index, false, true);
      if (ended_) return;
      if (plan_.slots == 1) ToCoordinator(coordinators_.size() - 1, PodEnded{pods_[pod].name});
      ReplacePod(pod);
      return;
    }
  }
  const Time wake = agent.core->next_wakeup();
  if (wake == kNever || wake == agent.wake_at) return;
  agent.wake_at = wake;
  At(std::max(wake, now_), [this, index, wake] {
    if (agents_[index]->wake_at != wake) return;
    agents_[index]->wake_at = kNever;
    ToAgent(index, program::Tick{});
  });
}

bool World::CanBeHeard(const Agent& agent) const {
  if (!agent.alive || agent.stopped || agent.link == 0 || pods_[agent.pod].cut_off) return false;
  const Link& link = links_.at(agent.link);
  return link.open && link.coordinator + 1 == coordinators_.size();
}

void World::NoteHearing(size_t index) {
  Agent& agent = *agents_[index];
  const bool heard = CanBeHeard(agent);
  if (heard && agent.bad_since != kNever) {
    agent.bad_until = now_;
    agent.bad_since = kNever;
  } else if (!heard && agent.bad_since == kNever) {
    agent.bad_since = now_;
  }
}

// ---- network

void World::OpenLink(size_t index) {
  After(Between(Duration(100'000), milliseconds(2)), [this, index] {
    Agent& agent = *agents_[index];
    if (!agent.alive) return;
    const size_t target = coordinators_.size() - 1;
    if (pods_[agent.pod].cut_off || now_ < agent.reset_until || !coordinators_[target].alive) {
      After(milliseconds(50), [this, index] { ToAgent(index, program::Disconnected{}); });
      return;
    }
    const uint64_t id = ++last_link_;
    Link& link = links_[id];
    link.agent = index;
    link.coordinator = target;
    link.last_up = link.last_down = now_;
    agent.link = id;
    NoteHearing(index);
    ToAgent(index, program::Connected{});
  });
}

void World::Break(uint64_t id, bool notify_coordinator, bool notify_agent) {
  Link& link = links_[id];
  if (!link.open) return;
  link.open = false;
  link.held.clear();
  const size_t index = link.agent;
  if (agents_[index]->link == id) agents_[index]->link = 0;
  NoteHearing(index);
  if (notify_coordinator) {
    After(Between(Duration(100'000), milliseconds(3)),
          [this, id] { ToCoordinator(links_[id].coordinator, AgentDisconnected{id}); });
  }
  if (notify_agent) {
    After(Between(Duration(100'000), milliseconds(3)),
          [this, index] { ToAgent(index, program::Disconnected{}); });
  }
}

void World::Send(uint64_t id, bool up, Message message) {
  const auto it = links_.find(id);
  if (it == links_.end() || !it->second.open) return;
  Time& last = up ? it->second.last_up : it->second.last_down;
  last = std::max(last, now_) + Between(Duration(30'000), Duration(900'000));
  At(last, [this, id, up, message = std::move(message)] { Deliver(id, up, message); });
}

// Delivers in the order sent, per direction. A broken link loses the messages in flight.
void World::Deliver(uint64_t id, bool up, const Message& message) {
  Link& link = links_[id];
  if (!link.open) return;
  if (pods_[agents_[link.agent]->pod].cut_off) {
    link.held.push_back([this, id, up, message] { Deliver(id, up, message); });
    return;
  }
  if (!up) return ToAgent(link.agent, program::FromCoordinator{message});
  link.arrived = now_;
  if (const auto* hello = std::get_if<Hello>(&message))
    ToCoordinator(link.coordinator, AgentConnected{id, *hello});
  else
    ToCoordinator(link.coordinator, MessageFrom{id, message});
}

}  // namespace ringmaster::rendezvous::sim
