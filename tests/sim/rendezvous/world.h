// SPDX-License-Identifier: Apache-2.0

// World simulates a whole gang in virtual time: coordinators, agents, trainers, pods, a network, and the
// faults of one seed. Coordinator and MemberCore are the real code; trainers, the network and the controller
// of the pods are models. A run is a pure function of its seed. The first broken invariant ends it.
//
// world.cc: time, network, agents, coordinators. trainer.cc: the model of a trainer. faults.cc: the faults
// and their schedule. checks.cc: the invariants.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/member.h"

namespace ringmaster::rendezvous::sim {

// The parameters of one run. Every seed draws which kinds of faults occur, and how often (swarm testing: a
// seed with few kinds of faults explores those more deeply).
struct Plan {
  int32_t min = 1, target = 1, max = 1;
  int64_t total_steps = 0;
  int64_t checkpoint_every = 0;
  Duration step_time{};
  Duration faults_end{};
  bool discards_at_once = false;  // trainers drop their state when a fetch starts, not when it is done
  bool through_codec = false;     // every message is encoded and decoded
  bool stops = false;             // RequestStop during the run
  // Mean time between faults of a kind over the whole gang; zero: none.
  Duration kill_trainer{}, kill_agent{}, reset{}, partition{}, stop_agent{}, stop_trainer{}, coordinator{},
      scale{}, leave{}, vanish{};
  Duration absence{};        // the coordinator is away for seconds to minutes
  Duration suspend{};        // the coordinator's process is stopped, then continues
  Duration read_late{};      // then its timers run for so long before it reads what has arrived
  Duration sever{};          // operations between trainers fail although none of them is dead
  Duration reset_outage{};   // the longest time until an agent can connect again after a reset
  double kill_at_event = 0;  // at every protocol event of a trainer: it or another one dies
  double deaf = 0;           // at every Prepare: the trainer hangs forever, and its agent does not notice
  double no_undo = 0;        // at every commit: the step cannot be undone
  double corrupt = 0;        // at every status: a bit of the state has flipped
  // Of every pod's node: it has other data, its trainers cannot start, or it lacks the checkpoints.
  double odd = 0, broken = 0, blind = 0;
  int32_t slots = 1;           // trainers of a pod
  Duration slow_return{};      // the longest time until an agent finds a new coordinator
  double change_leader = 0;    // at every Prepare, order to stop and Done: the coordinator is replaced
  double late_fatal = 0;       // at every cut of the network: a trainer that was left out fails meanwhile
  Duration flip{};             // memory changes without notice while a generation trains
  size_t address_bytes = 16;   // of each trainer
  bool odd_text = false;       // errors are long and not UTF-8
  double slow_search = 0;      // at every status: the member still looks for checkpoints
  double same_term = 0;        // at every start of a coordinator: it has the term of its predecessor
  bool long_steps = false;     // of seconds, which a device computes to the end before its member can answer
  bool refused_leave = false;  // agents whose trainer was refused exit: their pods move to another node
  static Plan Draw(SplitMix64& rng);
};

// The longest delay until the coordinator knows of an event: reconnecting, and messages in flight.
inline constexpr Duration kMargin = milliseconds(600);

struct State {
  bool has = false;
  int64_t step = 0;
  uint64_t content = 0;
};

// Returns the correct state of a step.
uint64_t Canon(int64_t step);
uint64_t NextContent(uint64_t content, int64_t next_step);

struct Ring {  // the trainers of one generation, coupled by their collectives
  NewGeneration generation;
  int64_t step = 0;  // being reduced; 0: none yet
  size_t entered = 0;
  uint64_t content = 0;   // the state from which the members compute
  size_t computing = 0;   // members that entered and have the state
  bool mixed = false;     // contributions from different states
  bool boundary = false;  // a member wants to pause after this step
  bool broken = false;    // a member is dead, or the network between them failed
  int64_t joined_at =
      0;  // step after which members that fetched while others trained have the state; 0: none
  std::vector<std::function<void()>> waiting;  // fetchers without a ready source
};

enum class Mode { kStarting, kStanding, kLoading, kFetching, kStepping, kStuck, kFinal, kGone };

struct Trainer {
  uint64_t epoch = 0;  // increases with each start: late events of an earlier process are dropped
  std::string id;
  std::string data;  // fingerprint
  Mode mode = Mode::kGone;
  bool stopped = false;  // SIGSTOP
  bool deaf = false;
  bool doomed = false;  // a fault or an order may end it
  State state;
  std::optional<State> undo;
  int64_t following = -1;  // fetches while others train: the step that it has committed with them
  std::optional<Prepare> prepare;
  bool answered = true;
  bool found_nothing = false;  // its node did not have the checkpoints when it answered
  Generation prepared = 0;
  std::optional<NewGeneration> generation;
  size_t rank = 0;
  bool ready = false;           // holds start_step's state in the current generation
  bool saved = false;           // wrote Done in the current generation
  Time last_up{}, last_down{};  // of its channel to the agent
  std::deque<StepRecord> records;
  std::vector<std::function<void()>> backlog;  // while stopped or cut off
  bool alive() const { return mode != Mode::kGone; }
  int64_t step() const { return following >= 0 ? following : state.step; }
};

struct Agent {
  size_t pod = 0;
  std::string name;
  std::unique_ptr<MemberCore> core;
  bool alive = true;
  bool stopped = false;
  bool terminated = false;
  uint64_t link = 0;
  Time wake_at = kNever;
  Time outage_since{};  // start and ...
  Time outage_until{};  // ... end of the latest time that the coordinator could not hear it
  bool in_outage = false;
  Time faulted_at{};              // it or its trainer had another fault than a reset
  Time reset_until{};             // no connection succeeds before, because of a reset
  bool with_predecessor = false;  // its last connection is to a coordinator that is no longer active
  Time trainer_died_at{};
  State died_with;
  Trainer trainer;
  std::vector<std::function<void()>> backlog;
};

struct Pod {
  std::string name;
  std::optional<size_t> agent;  // index into agents_
  std::string host = {};        // the name that the coordinator knows: the slots of a pod share it
  int32_t slot = 0;
  bool wanted = true;
  bool cut_off = false;  // partitioned
  uint64_t cuts = 0;
  // Of its node.
  std::string data = "data";
  bool broken = false;
  bool blind = false;
};

struct Link {
  size_t agent = 0;
  size_t coordinator = 0;
  bool open = true;
  bool said_hello = false;
  Time arrived{};  // when its newest message reached the coordinator's machine
  Time last_up{}, last_down{};
  std::vector<std::function<void()>> held;  // while the pod is cut off
};

struct Coord {
  std::unique_ptr<Coordinator> core;
  bool alive = true;
  bool suspended = false;
  std::deque<CoordinatorEvent> backlog;  // while suspended, or behind with reading
  Time started{};
  Time wake_at = kNever;
  int32_t min = 1, max = 1;
  std::set<std::string> evicted;
  std::map<std::string, MemberStatus> answered;  // by id: the newest status
  std::map<std::string, MemberStatus> outvoted;  // by id: a state that it called corrupt
  std::set<std::string> released;  // ids that got Exit, or were unreachable when a generation was published
  std::map<std::string, bool> was_member;  // id -> it was left out of a later generation that had room
  int64_t last_record = 0;
  int32_t records = 0;         // that it has published
  int32_t records_before = 0;  // when it sent the newest Prepare
  Generation published = 0;
  std::map<Generation, Urgency> prepared;
};

struct Outcome {
  bool ok = true;
  std::string violation;
  uint64_t events = 0;
  uint32_t generations = 0;
  uint32_t faults = 0;
  Time end{};
};

class World {
 public:
  World(uint64_t seed, bool trace);
  Outcome Run();

 private:
  // ---- world.cc
  void At(Time when, std::function<void()> what);
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  Duration Between(Duration low, Duration high);
  void Trace(const std::string& text);
  void StartCoordinator();
  void KillCoordinator(size_t index);
  void ToCoordinator(size_t index, const CoordinatorEvent& event);
  void Hear(Coord& coord, const CoordinatorEvent& event);
  void Perform(size_t coordinator);
  void PerformSend(size_t coordinator, ConnectionId to, const Message& message);
  void Drain(size_t coordinator);
  size_t StartAgent(size_t pod);
  void KillAgent(size_t agent, int32_t code, bool silently = false);
  void ToAgent(size_t agent, MemberEvent event);
  void PerformCommands(size_t agent);
  void OpenLink(size_t agent);
  void Break(uint64_t link, bool notify_coordinator, bool notify_agent);
  void SendUp(uint64_t link, Message message);
  void SendDown(uint64_t link, Message message);
  void Deliver(uint64_t link, bool up, const Message& message);
  void SetOutage(size_t agent, bool on);
  void AddPod();
  void DrawNode(Pod& pod);
  void ReplacePods();
  bool AllAgentsGone() const;
  Message Wire(const Message& message);

  // ---- trainer.cc
  void StartTrainer(size_t agent, const std::string& id);
  void EndTrainer(size_t agent, int32_t exit_code, bool notify);
  void ToTrainer(size_t agent, const Message& message);
  void FromTrainerTo(size_t agent, Message message);
  void InTrainer(size_t agent, Duration delay, std::function<void(Agent&)> what);
  void RunInTrainer(size_t agent, uint64_t epoch, const std::function<void(Agent&)>& what);
  void OnPrepare(size_t agent, const Prepare& prepare);
  void Answer(size_t agent, Generation generation);
  void OnNewGeneration(size_t agent, const NewGeneration& next);
  void Load(size_t agent);
  void FailToStart(size_t agent);
  void Fetch(size_t agent);
  void Ready(size_t agent);
  void Enter(size_t agent);
  void Commit(size_t agent, Generation generation, int64_t step, uint64_t content, bool boundary);
  void AfterCommit(size_t agent, Generation generation, int64_t step, bool boundary);
  void Finish(size_t agent);
  bool StatesDiffer(const Ring& ring);
  void Diverge(const Ring& ring);
  void Report(size_t agent, size_t newest);
  Trainer* Find(const std::string& member, size_t* agent = nullptr);
  void MaybeDieHere(size_t agent);
  void BreakRing(Generation generation);
  void FailOperation(size_t agent, Generation generation, Duration delay);
  void Disturb(size_t agent);

  // ---- faults.cc
  void ScheduleFaults();
  void Repeat(Duration mean, std::function<void()> what);
  void FaultsOver();
  std::string RepairedData() const;
  std::optional<size_t> AnyAgent();
  void CutOff(size_t pod, Duration duration);
  void Reconnect(size_t pod);
  void StopAgent(size_t agent, Duration duration);
  void ContinueAgent(size_t agent);
  void StopTrainer(size_t agent, Duration duration);
  void ContinueTrainer(size_t agent);
  void Scale();
  void LeaveByPlan();
  void RequestStopOfJob();
  void Absence();
  void Suspend();
  void Sever();
  void EndHost(size_t agent);
  void MaybeChangeLeader();
  void FailLate(size_t pod, Duration duration);
  void FlipMemory();

  // ---- checks.cc
  void Fail(const std::string& what);
  void CheckPublished(size_t coordinator, const NewGeneration& next);
  bool Reachable(const Agent& agent) const;
  void CheckNotLost(const Coord& coordinator, const NewGeneration& next);
  void CheckRelease(size_t agent);
  void CheckMayEnd(const Agent& agent, const std::string& who);
  void CheckResets(const Ring& before, const NewGeneration& next);
  void CheckSameData(const NewGeneration& next);
  void CheckRefused(const Coord& coordinator, const Evict& evict);
  void CheckLate(const Coord& coordinator, const Evict& evict);
  void CheckFailed(const rendezvous::Report& report);
  void CheckOutvoted(const Coord& coordinator, const NewGeneration& next);
  void CheckAsked(const Coord& coordinator);
  void CheckEnded(Coordinator& core);

  uint64_t seed_;
  bool trace_;
  SplitMix64 rng_;
  Plan plan_;
  Time now_{};
  struct Item {
    Time at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Item& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  std::priority_queue<Item> queue_;
  uint64_t order_ = 0;
  Outcome outcome_;
  Time asked_arrival_{};  // the newest answer to AskArrival
  bool tainted_ = false;  // corruption without a healthy majority, which no coordinator can detect
  bool corrupted_ = false;
  std::set<std::string> data_;  // of all trainers that have joined

  uint32_t term_ = 0;
  std::vector<Coord> coordinators_;  // the last one is the active one
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<Pod> pods_;
  std::map<uint64_t, Link> links_;
  uint64_t last_link_ = 0;
  std::map<Generation, Ring> rings_;
  std::map<std::string, std::pair<size_t, uint64_t>> members_;  // id -> agent, trainer epoch
  struct ReportedState {
    std::string member;
    bool corrupt = false;
    int64_t step = 0;
    std::string data;
  };
  std::map<Generation, std::vector<ReportedState>> statuses_;  // statuses with state
  std::map<Generation, std::set<std::string>> answered_;       // ids that paused for it
  std::set<std::string> corrupt_members_;
  State disk_;
  int64_t newest_commit_ = 0;
  bool faults_over_ = false;
  Time absent_until_{};
  Time suspended_at_{};  // the latest suspension of a coordinator: start and ...
  Time continued_at_{};  // ... end
  bool stop_requested_ = false;
  bool ended_ = false;
  GangPhase end_phase_ = GangPhase::kForming;
};

}  // namespace ringmaster::rendezvous::sim
