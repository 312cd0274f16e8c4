// SPDX-License-Identifier: Apache-2.0

// World simulates a gang of programs of a user in virtual time: coordinators, agents, programs, pods, a
// network, the controller, and the faults of one seed. ProgramCoordinator and ProgramMemberCore are the real
// code; programs, the network and the controller are models. A run is a pure function of its seed. The first
// broken invariant ends it.
//
// world.cc: time, network, agents, coordinators. program.cc: the model of a program. faults.cc: the faults
// and their schedule. checks.cc: the invariants, by number as in program_coordinator.h.
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
#include "rendezvous/program_coordinator.h"
#include "rendezvous/program_member.h"

namespace ringmaster::rendezvous::sim {

inline constexpr Duration kSilence = seconds(1);    // CoordinatorOptions::silence_limit
inline constexpr Duration kEndLimit = seconds(12);  // ProgramOptions::end_limit
// The longest time from the failure of a program, which its peers notice, to its end.
inline constexpr Duration kTeardown = milliseconds(400);

enum class Shape { kAll, kLauncher, kLauncherApart, kServers };

// The parameters of one run. Every seed draws which kinds of faults occur, and how often.
struct Plan {
  Shape shape = Shape::kAll;
  int32_t min = 1, target = 1, max = 1;
  int32_t slots = 1;
  int32_t servers = 0;  // of the role that starts again alone
  Duration work{};      // of an incarnation
  Duration faults_end{};
  Duration busy{};  // the longest time from the end of a program to the report of its agent
  bool stops = false;
  bool checks_peers = false;
  // Mean time between faults of a kind over the whole gang; zero: none.
  Duration fail{}, crash{}, kill_agent{}, vanish{}, reset{}, cut{}, stop_agent{}, leader{}, scale{}, leave{};
  Duration outage{};      // the longest time until an agent can connect again
  double hangs = 0;       // of survivors: they do not notice the death of a peer
  double stubborn = 0;    // of programs: they end by SIGKILL only
  double stuck = 0;       // of programs: they survive SIGKILL for long
  double cut_at_end = 0;  // of runs: an agent is cut off just before its program ends
  double survivors = 0;   // of failures: a process of the program survives SIGKILL for long
  double lies = 0;        // of launchers: they end with 0 though a rank has failed
  double blocked = 0;     // of runs: two workers cannot reach each other for a while
  static Plan Draw(SplitMix64& rng);
};

struct Death {
  int32_t code = 0;
  std::string message;
  bool own = false;  // a cause, as opposed to a consequence or an order
  Time at{};
  Time reported = kNever;  // when its agent learned of it
};

// One incarnation, as it really was.
struct Run {
  std::vector<Member> members;
  std::set<std::string> started;  // agents
  bool broken = false;            // a member has died before the end of the work
  bool complete = false;          // the work is done
  int32_t life = 0;
  std::map<std::string, Death> deaths;  // by agent: without an order, newest life
  std::set<std::string> lost;           // agents that died, or could not be heard for long
  std::map<std::string, Time> lost_at;  // of those that died
  std::set<std::string> ranks;          // of a launcher, that have ended with 0: their agents
  bool ordered = false;                 // an order to stop it was sent
  bool done = false;                    // all of its work had succeeded before
};

struct Program {
  bool alive = false;
  bool killed = false;  // SIGKILL was sent
  bool hangs = false;
  bool failing = false;  // its peers have noticed, and it has not ended
  bool stubborn = false;
  bool stuck = false;
  bool survived = false;   // it has failed, and one of its processes survives SIGKILL
  bool rank_open = false;  // a rank of a launcher runs in it
  Generation generation = 0;
  int32_t life = 0;
  uint64_t epoch = 0;
};

struct Agent {
  size_t pod = 0;
  std::string name;
  std::unique_ptr<ProgramMemberCore> core;
  bool alive = true;
  bool stopped = false;
  bool leaving = false;
  uint64_t link = 0;
  Time wake_at = kNever;
  Time reset_until{};
  Time bad_since = kNever;  // since when it cannot be heard
  Time bad_until{};         // when that was over the last time
  Program program;
  std::vector<program::Ranks> unread;                 // what its ranks have sent, and it has not read yet
  std::optional<program::Ended> unreported;           // its program has ended, and it has not looked yet
  std::optional<program::Failed> unreported_failure;  // the same, and it is not over
  bool listens = false;
  std::vector<std::function<void()>> backlog;
};

struct Pod {
  std::string name;
  std::string role;
  int32_t number = 0;
  int32_t slot = 0;
  std::optional<size_t> agent;
  bool wanted = true;
  bool cut_off = false;
  uint64_t cuts = 0;
};

struct Link {
  size_t agent = 0;
  size_t coordinator = 0;
  bool open = true;
  Time arrived{};
  Time last_up{}, last_down{};
  std::vector<std::function<void()>> held;  // while the pod is cut off
};

struct Coord {
  std::unique_ptr<ProgramCoordinator> core;
  bool alive = true;
  bool resumed = false;
  Time wake_at = kNever;
  Generation allowed = 0;
  Generation published = 0;
  std::optional<Generation> judged;  // of the newest incident
  int32_t failures = 0;
  bool checked = false;  // agents were asked to check the network
  int32_t min = 1, max = 1;
};

struct Outcome {
  bool ok = true;
  std::string violation;
  uint64_t events = 0;
  uint32_t incarnations = 0;
  uint32_t faults = 0;
  uint32_t incidents = 0;
  Time end{};
};

class World {
 public:
  World(uint64_t seed, bool trace);
  Outcome Run();

 private:
  using Truth = sim::Run;

  // ---- world.cc
  void At(Time when, std::function<void()> what);
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  Duration Between(Duration low, Duration high);
  void Trace(const std::string& text);
  ProgramPolicy PolicyOfShape() const;
  void StartCoordinator();
  void KillCoordinator(size_t index);
  void ToCoordinator(size_t index, const CoordinatorEvent& event);
  void Perform(size_t index);
  void PerformSend(size_t index, ConnectionId to, const Message& message);
  void Control(size_t index);
  void AddPod(const std::string& role, int32_t number, int32_t slot);
  void StartAgent(size_t pod);
  void EndAgent(size_t agent, bool silently, bool program_ends);
  void ReplacePod(size_t pod);
  void EndHost(const std::string& pod);
  void ToAgent(size_t agent, program::Event event);
  void PerformCommands(size_t agent);
  void OpenLink(size_t agent);
  void Break(uint64_t link, bool notify_coordinator, bool notify_agent);
  void Send(uint64_t link, bool up, Message message);
  void Deliver(uint64_t link, bool up, const Message& message);
  void NoteHearing(size_t agent);
  bool CanBeHeard(const Agent& agent) const;

  // ---- program.cc
  void StartTheProgram(size_t agent, const program::Start& start);
  void Complete(Generation generation);
  void EndProgram(size_t agent, int32_t code, const std::string& message, bool own, bool ordered);
  void FailWithSurvivors(size_t agent, const program::Ended& how);
  void BreakRun(Generation generation);
  void Survive(size_t agent);
  void Signal(size_t agent, bool kill);
  void AnswerCheck(size_t agent, const program::Check& check);
  void InProgram(size_t agent, Duration delay, std::function<void()> what);

  // ---- faults.cc
  void ScheduleFaults();
  void Repeat(Duration mean, std::function<void()> what);
  void FaultsOver();
  std::optional<size_t> AnyAgent(bool with_program);
  void CutOff(size_t pod, Duration duration);
  void Reconnect(size_t pod);
  void StopAgent(size_t agent, Duration duration);
  void Scale();
  void LeaveByPlan();

  // ---- checks.cc
  void Fail(const std::string& what);
  void CheckPublished(size_t index, const StartProgram& start);
  void CheckReport(size_t index);
  void CheckIncident(const Incident& incident);
  void CheckLoss(const FailureRecord& record);
  void CheckEnded(const rendezvous::Report& report);
  // A program of this agent has failed a while ago, and a process of it is left.
  void CheckReaction(size_t agent, Generation generation, size_t coordinator);
  bool DoneByTruth(const Truth& run) const;
  // Whether this agent has been heard without a pause for a while, up to now.
  bool HeardWell(const Agent& agent, Duration for_long) const;
  const Agent* Find(const std::string& name) const;

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
  std::vector<Coord> coordinators_;  // the last one is the active one
  std::vector<std::unique_ptr<Agent>> agents_;
  std::deque<Pod> pods_;
  std::map<uint64_t, Link> links_;
  uint64_t last_link_ = 0;
  std::map<Generation, Truth> runs_;
  std::set<std::string> replaced_;  // pods whose agent was lost or replaced
  Generation accounted_ = 0;
  Time blocked_until_{};
  bool faults_over_ = false;
  bool stop_requested_ = false;
  bool ended_ = false;
  int32_t max_ = 1;         // of workers, now
  bool disturbed_ = false;  // scaled, left by plan, or continued by another coordinator
};

}  // namespace ringmaster::rendezvous::sim
