// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/rendezvous/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "rendezvous/codec.h"

namespace ringmaster::rendezvous::sim {
namespace {

constexpr Duration kUnresponsiveLimit = milliseconds(500);
constexpr Duration kTimeLimit = seconds(90);  // after the faults: enough for every deadline in a row

}  // namespace

World::World(uint64_t seed, bool trace) : seed_(seed), trace_(trace), rng_(Mix64(seed ^ 0x5eed)) {
  plan_ = Plan::Draw(rng_);
}

Outcome World::Run() {
  disk_ = {true, 0, Canon(0)};
  for (int32_t i = 0; i < plan_.target; ++i) AddPod();
  StartCoordinator();
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    After(Between(milliseconds(0), milliseconds(300)), [this, pod] {
      if (!pods_[pod].agent) StartAgent(pod);
    });
  }
  ScheduleFaults();
  Time instant = kNever;
  int in_instant = 0;
  while (outcome_.ok && !tainted_ && !queue_.empty()) {
    Item item = std::move(const_cast<Item&>(queue_.top()));
    queue_.pop();
    now_ = item.at;
    if (now_ > std::max(Time{} + plan_.faults_end, absent_until_) + kTimeLimit) {
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
    if (ended_ && AllAgentsGone()) break;
  }
  if (outcome_.ok && !tainted_ && !(ended_ && AllAgentsGone())) Fail("nothing is left to happen");
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

void World::StartCoordinator() {
  CoordinatorOptions options;
  options.job = "default/job";
  options.min = plan_.min;
  options.target = plan_.target;
  options.max = plan_.max;
  options.slots = plan_.slots;
  const bool same = plan_.same_term > 0 && term_ > 0 && rng_.Chance(plan_.same_term);
  options.term = same ? term_ : ++term_;
  options.status_deadline = seconds(1);
  options.candidate_deadline = milliseconds(600);
  options.boundary_deadline = seconds(2);
  options.unresponsive_limit = kUnresponsiveLimit;
  options.silence_limit = seconds(1);
  options.holder_grace = milliseconds(1500);
  options.quorum_grace = seconds(3);
  if (!coordinators_.empty()) {
    const rendezvous::Report& old = coordinators_.back().core->report();
    options.resumed = true;
    options.known_step = old.step;
    options.known_checkpoint = old.checkpoint_step;
    for (const auto& agent : agents_)
      agent->reset_until = std::max(agent->reset_until, now_ + Between(Duration::zero(), plan_.slow_return));
  }
  Coord coord;
  coord.core = std::make_unique<Coordinator>(options);
  coord.started = now_;
  coord.min = plan_.min;
  coord.max = plan_.max;
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
  for (auto& [id, link] : links_) {
    if (link.coordinator == index && link.open) Break(id, false, true);
  }
}

void World::ToCoordinator(size_t index, const CoordinatorEvent& event) {
  Coord& coord = coordinators_[index];
  if (!coord.alive || !outcome_.ok) return;
  if (coord.suspended) {
    if (!std::holds_alternative<TimePassed>(event)) coord.backlog.push_back(event);
    return;
  }
  // A busy coordinator reads late, but its timers run.
  if (!coord.backlog.empty() &&
      (std::holds_alternative<MessageFrom>(event) || std::holds_alternative<AgentConnected>(event) ||
       std::holds_alternative<AgentDisconnected>(event))) {
    coord.backlog.push_back(event);
    return;
  }
  Hear(coord, event);
  Perform(index);
}

// Remembers what members answer: the vote is about that, and not about what a memory flip has made of it
// since.
void World::Hear(Coord& coord, const CoordinatorEvent& event) {
  const auto* message = std::get_if<MessageFrom>(&event);
  if (const auto* status = message == nullptr ? nullptr : std::get_if<MemberStatus>(&message->message))
    coord.answered[status->member] = *status;
  coord.core->On(event, now_);
}

// Hands over what waits in the sockets.
void World::Drain(size_t index) {
  while (true) {
    Coord& coord = coordinators_[index];
    if (!coord.alive || coord.suspended || coord.backlog.empty() || !outcome_.ok) return;
    const CoordinatorEvent event = std::move(coord.backlog.front());
    coord.backlog.pop_front();
    Hear(coord, event);
    Perform(index);
  }
}

void World::Perform(size_t index) {
  Coordinator& core = *coordinators_[index].core;
  bool changed = false;
  std::vector<ConnectionId> asked;
  for (CoordinatorOutput& output : core.Take()) {
    if (auto* send = std::get_if<SendTo>(&output)) {
      for (const ConnectionId to : send->connections) PerformSend(index, to, *send->message);
    } else if (const auto* ask = std::get_if<AskArrival>(&output)) {
      asked.push_back(ask->connection);
    } else if (const auto* close = std::get_if<CloseConnection>(&output)) {
      if (links_[close->connection].open) Break(close->connection, false, true);
    } else if (const auto* progress = std::get_if<ProgressOut>(&output)) {
      Coord& coord = coordinators_[index];
      for (const StepRecord& record : progress->progress.records) {
        if (record.step <= coord.last_record) Fail("a step was recorded twice or out of order");
        coord.last_record = record.step;
        ++coord.records;
      }
    } else if (const auto* line = std::get_if<EventLine>(&output)) {
      for (const Pod& pod : pods_) {
        if (!pod.agent || !line->text.starts_with(pod.host + " failed (corrupt)")) continue;
        Coord& coord = coordinators_[index];
        const auto said = coord.answered.find(agents_[*pod.agent]->trainer.id);
        // Not another slot of the host. A leader that goes back is judged by the state it goes back to.
        if (said == coord.answered.end() || said->second.params_hash == Canon(said->second.step) ||
            line->text.find(fmt::format("its state of step {} differs", said->second.step)) ==
                std::string::npos)
          continue;
        coord.outvoted[said->first] = said->second;
      }
      Trace("  -- " + line->text);
      if (line->kind == EventKind::kWorkerSilent && now_ - asked_arrival_ < kUnresponsiveLimit)
        Fail(line->text + ", though its messages have arrived and wait to be read");
    } else {
      changed = true;
    }
  }
  if (changed) {
    const GangPhase phase = core.report().phase;
    // Only the active coordinator ends the job: the successor of this one finds the job done, or continues
    // it.
    if (phase >= GangPhase::kStopped && !ended_ && index + 1 == coordinators_.size()) CheckEnded(core);
  }
  for (const ConnectionId id : asked) {
    asked_arrival_ = links_[id].arrived;
    ToCoordinator(index, LastArrival{id, asked_arrival_});
  }
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
  Coordinator& core = *coordinators_[index].core;
  Coord& coord = coordinators_[index];
  if (const auto* next = std::get_if<NewGeneration>(&message)) CheckPublished(index, *next);
  if (const auto* prepare = std::get_if<Prepare>(&message)) {
    const auto [it, first] = coord.prepared.emplace(prepare->generation, prepare->urgency);
    if (!first && it->second != prepare->urgency) Fail("one generation was prepared in two ways");
    if (first) coord.records_before = coord.records;
    if (first) MaybeChangeLeader();
  }
  if (const auto* evict = std::get_if<Evict>(&message)) {
    if (evict->refused) CheckRefused(coord, *evict);
    CheckLate(coord, *evict);
    coord.evicted.insert(evict->member);
  }
  if (std::holds_alternative<Exit>(message) && core.report().phase < GangPhase::kStopped) {
    const size_t released = links_[to].agent;
    CheckRelease(released);
    coord.released.insert(agents_[released]->trainer.id);
  }
  SendDown(to, message);
}

// ---- agents

size_t World::StartAgent(size_t pod) {
  const size_t index = agents_.size();
  auto agent = std::make_unique<Agent>();
  agent->pod = pod;
  agent->name = "a" + std::to_string(index);
  MemberOptions options;
  options.hello = {"default/job", pods_[pod].host, agent->name, "secret"};
  options.hello.slot = pods_[pod].slot;
  options.exit_grace = seconds(2);
  options.leave_grace = seconds(30);
  options.exit_when_refused = plan_.refused_leave;
  agent->core = std::make_unique<MemberCore>(options);
  agent->outage_since = agent->outage_until = now_;
  agents_.push_back(std::move(agent));
  pods_[pod].agent = index;
  SetOutage(index, pods_[pod].cut_off);
  Trace(fmt::format("{}: agent a{} starts", pods_[pod].name, index));
  ToAgent(index, Started{});
  return index;
}

void World::KillAgent(size_t index, int32_t code, bool silently) {
  Agent& agent = *agents_[index];
  if (!agent.alive) return;
  Trace(fmt::format("{}: agent a{} ends with {}", pods_[agent.pod].name, index, code));
  EndTrainer(index, 137, false);
  agent.alive = false;
  agent.backlog.clear();
  if (agent.link != 0) Break(agent.link, !silently, false);
  const size_t pod = agent.pod;
  if (pods_[pod].agent == index) pods_[pod].agent.reset();
  if (code == kExitRefused) DrawNode(pods_[pod]);
  if (agent.terminated && code == 0 && !faults_over_) pods_[pod].wanted = false;
  if (!ended_) After(Between(milliseconds(50), milliseconds(600)), [this] { ReplacePods(); });
}

void World::AddPod() {
  Pod& pod = pods_.emplace_back();
  const auto index = static_cast<int32_t>(pods_.size()) - 1;
  pod.name = "pod-" + std::to_string(index);
  pod.host = plan_.slots == 1 ? pod.name : "host-" + std::to_string(index / plan_.slots);
  pod.slot = index % plan_.slots;
  DrawNode(pods_.back());
}

void World::DrawNode(Pod& pod) {
  if (faults_over_) return;
  pod.data = plan_.odd > 0 && rng_.Chance(plan_.odd) ? "other data" : "data";
  pod.broken = plan_.broken > 0 && rng_.Chance(plan_.broken);
  pod.blind = plan_.blind > 0 && rng_.Chance(plan_.blind);
}

// Models the controller: every wanted pod without an agent gets one.
void World::ReplacePods() {
  if (ended_) return;
  int32_t wanted = 0;
  for (const Pod& pod : pods_) wanted += pod.wanted ? 1 : 0;
  for (Pod& pod : pods_) {
    if (!pod.wanted && wanted < plan_.target) {
      pod.wanted = true;
      ++wanted;
    }
  }
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    if (pods_[pod].wanted && !pods_[pod].agent) StartAgent(pod);
  }
}

bool World::AllAgentsGone() const {
  return std::none_of(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->alive; });
}

void World::ToAgent(size_t index, MemberEvent event) {
  Agent& agent = *agents_[index];
  if (!agent.alive || !outcome_.ok) return;
  if (agent.stopped) {
    agent.backlog.push_back([this, index, event = std::move(event)] { ToAgent(index, event); });
    return;
  }
  agent.core->On(event, now_);
  PerformCommands(index);
}

void World::PerformCommands(size_t index) {
  Agent& agent = *agents_[index];
  for (MemberCommand& command : agent.core->Take()) {
    if (!agent.alive) return;
    if (std::holds_alternative<Connect>(command)) {
      OpenLink(index);
    } else if (auto* up = std::get_if<SendCoordinator>(&command)) {
      SendUp(agent.link, std::move(up->message));
    } else if (auto* down = std::get_if<SendTrainer>(&command)) {
      Trainer& trainer = agent.trainer;
      trainer.last_down = std::max(trainer.last_down, now_) + Between(Duration(5'000), Duration(200'000));
      const uint64_t epoch = trainer.epoch;
      At(trainer.last_down, [this, index, epoch, message = Wire(down->message)] {
        RunInTrainer(index, epoch, [this, index, message](Agent&) { ToTrainer(index, message); });
      });
    } else if (const auto* start = std::get_if<rendezvous::StartTrainer>(&command)) {
      StartTrainer(index, start->member);
    } else if (std::holds_alternative<KillTrainer>(command)) {
      CheckMayEnd(agent, "its agent");
      EndTrainer(index, 137, true);
    } else if (const auto* exit = std::get_if<ExitAgent>(&command)) {
      CheckMayEnd(agent, "the end of its agent");
      KillAgent(index, exit->code);
      return;
    }
  }
  const Time wake = agent.core->next_wakeup();
  if (wake == kNever || wake == agent.wake_at) return;
  agent.wake_at = wake;
  At(std::max(wake, now_), [this, index, wake] {
    if (agents_[index]->wake_at != wake) return;
    agents_[index]->wake_at = kNever;
    ToAgent(index, Tick{});
  });
}

// Outages with less than kMargin between them count as one.
void World::SetOutage(size_t index, bool on) {
  Agent& agent = *agents_[index];
  if (on && !agent.in_outage && now_ - agent.outage_until > kMargin) agent.outage_since = now_;
  if (agent.in_outage || on) agent.outage_until = now_;
  agent.in_outage = on;
}

// ---- network

void World::OpenLink(size_t index) {
  const Duration delay = Between(Duration(100'000), milliseconds(2));
  After(delay, [this, index] {
    Agent& agent = *agents_[index];
    if (!agent.alive) return;
    const size_t target = coordinators_.size() - 1;
    if (pods_[agent.pod].cut_off || now_ < agent.reset_until || !coordinators_[target].alive) {
      After(milliseconds(50), [this, index] { ToAgent(index, Disconnected{}); });
      return;
    }
    const uint64_t id = ++last_link_;
    Link& link = links_[id];
    link.agent = index;
    link.coordinator = target;
    link.last_up = link.last_down = now_;
    agent.link = id;
    // Its Join and the membership change that follows take a moment.
    if (agent.with_predecessor)
      After(milliseconds(600), [this, index] { agents_[index]->with_predecessor = false; });
    SetOutage(index, true);
    SetOutage(index, agent.stopped);
    ToAgent(index, Connected{});
  });
}

void World::Break(uint64_t id, bool notify_coordinator, bool notify_agent) {
  Link& link = links_[id];
  if (!link.open) return;
  link.open = false;
  link.held.clear();
  const size_t index = link.agent;
  if (agents_[index]->link == id) agents_[index]->link = 0;
  const bool before = agents_[index]->in_outage;
  SetOutage(index, true);
  SetOutage(index, before);
  if (notify_coordinator) {
    After(Between(Duration(100'000), milliseconds(3)),
          [this, id] { ToCoordinator(links_[id].coordinator, AgentDisconnected{id}); });
  }
  if (notify_agent) {
    After(Between(Duration(100'000), milliseconds(3)), [this, index] { ToAgent(index, Disconnected{}); });
  }
}

Message World::Wire(const Message& message) {
  if (!plan_.through_codec) return message;
  Decoder decoder;
  decoder.Feed(Encode(message));
  Result<std::optional<Message>> decoded = decoder.Next();
  if (!decoded.ok() || !decoded->has_value()) {
    Fail("a message is refused: " + (decoded.ok() ? "it is not whole" : decoded.error().message));
    return message;
  }
  // Text that is not UTF-8 changes once.
  CHECK(**decoded == message || (plan_.odd_text && Encode(**decoded) == Encode(message)),
        "the codec changed a message");
  return **decoded;
}

void World::SendUp(uint64_t id, Message message) {
  const auto it = links_.find(id);
  if (it == links_.end() || !it->second.open) return;
  Link& link = it->second;
  link.last_up = std::max(link.last_up, now_) + Between(Duration(30'000), Duration(900'000));
  At(link.last_up, [this, id, message = Wire(message)] { Deliver(id, true, message); });
}

void World::SendDown(uint64_t id, Message message) {
  const auto it = links_.find(id);
  if (it == links_.end() || !it->second.open) return;
  Link& link = it->second;
  link.last_down = std::max(link.last_down, now_) + Between(Duration(30'000), Duration(900'000));
  At(link.last_down, [this, id, message = Wire(message)] { Deliver(id, false, message); });
}

// Delivers in the order sent, per direction. A broken link loses the messages in flight.
void World::Deliver(uint64_t id, bool up, const Message& message) {
  Link& link = links_[id];
  if (!link.open) return;
  if (pods_[agents_[link.agent]->pod].cut_off) {
    link.held.push_back([this, id, up, message] { Deliver(id, up, message); });
    return;
  }
  if (!up) {
    if (std::holds_alternative<Evict>(message) || std::holds_alternative<Exit>(message)) {
      agents_[link.agent]->trainer.doomed = true;
    }
    ToAgent(link.agent, FromCoordinator{message});
    return;
  }
  link.arrived = now_;
  if (std::holds_alternative<Done>(message)) MaybeChangeLeader();
  if (const auto* hello = std::get_if<Hello>(&message)) {
    link.said_hello = true;
    ToCoordinator(link.coordinator, AgentConnected{id, *hello});
  } else {
    if (const auto* join = std::get_if<Join>(&message)) {
      coordinators_[link.coordinator].released.erase(join->member);
    }
    ToCoordinator(link.coordinator, MessageFrom{id, message});
  }
}

}  // namespace ringmaster::rendezvous::sim
