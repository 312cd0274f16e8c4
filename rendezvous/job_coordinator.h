// SPDX-License-Identifier: Apache-2.0

// What the server knows of a job's coordinator: its options, its events, its outputs and its interface. There
// are two kinds. Coordinator (coordinator.h) keeps native trainers, which hold the training state in memory.
// ProgramCoordinator (program_coordinator.h) keeps programs of users, which it can only start and stop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/busy_times.h"
#include "rendezvous/event_line.h"
#include "rendezvous/messages.h"
#include "rendezvous/program_policy.h"
#include "rendezvous/report.h"

namespace ringmaster::rendezvous {

// Of a generation's number that an agent reports. The rest is enough for the life of a coordinator.
inline constexpr uint32_t kMaxLearnedSequence = uint32_t{1} << 31;

using ConnectionId = uint64_t;  // the server never reuses one; 0: not connected

// Of a coordinator of programs.
struct ProgramOptions {
  // From SIGTERM to SIGKILL when an incarnation is stopped by plan: spec.restart.stopSeconds.
  Duration stop_grace = seconds(30);
  // The same after a failure, if that is shorter: its peers are lost, so a program can finish little.
  Duration failure_grace = seconds(5);
  // How long reports of earlier failures may take before the gang is stopped, unless the first one is
  // certainly no consequence.
  Duration gather_window = milliseconds(100);
  // The same while all known failures look like consequences, and other programs run: one of them is failing.
  Duration consequence_window = seconds(1);
  // How long the report of a rank may take after the launcher's (ProgramPolicy::counts_ranks).
  Duration rank_grace = seconds(2);
  // How long the end of a job waits for agents that are not heard when all others have done their part.
  Duration end_limit = seconds(60);
  // How much longer an agent may take to report that its program has ended.
  Duration stop_margin = seconds(10);
  // Joining workers end an incarnation that could be larger, but not one that is younger than this.
  Duration growth_window = seconds(60);
  // How long fewer workers than `target` wait for others, counted from the last one that came.
  Duration last_call = seconds(10);
  // A new coordinator waits this long for the workers of a running incarnation.
  Duration adoption_grace = seconds(20);
  // The check of the network before the first incarnation: how long an agent may take for one step, which
  // includes connections that time out, and the pause after a check that has found unreachable workers.
  Duration check_limit = seconds(15);
  Duration check_pause = seconds(5);
  // An incarnation without step reports that has run for this long has made progress.
  Duration stable_after = seconds(600);
  // Failures of this incarnation and of older ones are accounted: the next one may start. See AllowRestart.
  Generation accounted = 0;
  ProgramPolicy policy = {};
};

struct CoordinatorOptions {
  std::string job;
  std::string uid = {};  // of the job, which another one of its name may replace; empty: none does
  int32_t min = 1;
  int32_t target = 1;  // replicas: the first formation waits for this many
  int32_t max = 1;
  int32_t slots = 1;  // members per worker pod; min, target and max count members that are workers
  uint32_t term = 0;  // increases with every coordinator of this job
  // The job has run under an earlier coordinator, and its members may still be training. They get
  // `holder_grace` to connect, counted from the first one that joins, because the new coordinator's address
  // may reach all of them late. `known_*` is what the earlier coordinator had recorded.
  bool resumed = false;
  int64_t known_step = 0;
  int64_t known_checkpoint = -1;

  // Deaths and leaves within this window are one change (a network uses 20 ms).
  Duration gather_window = milliseconds(2);
  // Joins within this window are one change.
  Duration growth_window = milliseconds(50);
  // The first formation starts below target when no worker has joined for this long.
  Duration last_call = milliseconds(500);
  // From Prepare to the MemberStatus of a member; twice the time of a step if that is longer.
  Duration status_deadline = seconds(10);
  // The same for a joining worker: shorter, because members wait for it.
  Duration candidate_deadline = seconds(2);
  // An unanswered boundary Prepare becomes an abort; the same.
  Duration boundary_deadline = seconds(30);
  // A member whose agent is unresponsive is left out: after this limit, or after two steps if that is longer,
  // when no step commits (a commit needs every member). silence_limit bounds the wait; only then does the
  // report name the pod as silent, upon which the controller replaces it. A lost connection is treated alike:
  // it may be a reset, and its agent connects again. A failed operation or the end of the pod shows the
  // death.
  Duration unresponsive_limit = milliseconds(700);  // agents send five messages a second: three are missing
  Duration silence_limit = seconds(3);              // REQUIRES: at least unresponsive_limit
  Duration holder_grace = seconds(3);               // how long I4 waits for an unreachable holder
  // The same for a new coordinator that no holder has reached while fewer than `target` members have joined:
  // the name server may lead agents to its predecessor for long.
  Duration resumed_grace = seconds(60);
  // How long a failed operation waits for the loss that explains it. Then the members try again.
  Duration operation_limit = seconds(10);
  // How long fewer workers than `target` wait for others before their faults end the job: none of them can
  // start, their fingerprints have no majority, or none can load the checkpoint.
  Duration quorum_grace = seconds(30);
  // How long members may look for checkpoints on slow storage, and how often they are asked whether they have
  // finished. An answer takes up to 2 s (worker/trainer/checkpoint_search.h).
  Duration search_limit = seconds(600);
  Duration search_pause = milliseconds(200);
  // Returns the domain of a node: ranks of one domain become ring neighbours. Empty, as without this
  // function: unknown. Is called on the server's thread, and must not block.
  std::function<std::string(const std::string& node)> domain_of = {};
  // The trainers are programs of a user with libringmaster: the job ends when the programs have ended.
  bool await_programs = false;
  // The workers run programs of a user; nullopt: native trainers.
  std::optional<ProgramOptions> programs = {};
};

// ---- events
struct AgentConnected {  // the server has authenticated it and found the job
  ConnectionId connection = 0;
  Hello hello;
};
struct AgentDisconnected {
  ConnectionId connection = 0;
};
struct MessageFrom {
  ConnectionId connection = 0;
  Message message;
};
struct LastArrival {  // the answer to AskArrival, before any other event
  ConnectionId connection = 0;
  Time at;  // when its newest bytes reached this machine; Time::min(): all of them are read
};
struct SetLimits {
  int32_t min = 1;
  int32_t target = 1;
  int32_t max = 1;
  ProgramPolicy policy = {};  // only for programs
};
struct PodEnded {  // all processes of this pod have ended; REQUIRES: before another pod of this name connects
  std::string pod;
};
struct RequestStop {};  // suspend, Ctrl-C: write a checkpoint, then end
// The failure that ended this incarnation is accounted (Report::incident), so the next one may start. Only
// for programs.
struct AllowRestart {
  Generation generation = 0;
};
struct TimePassed {};
using CoordinatorEvent = std::variant<AgentConnected, AgentDisconnected, MessageFrom, LastArrival, SetLimits,
                                      PodEnded, RequestStop, AllowRestart, TimePassed>;

// ---- outputs
// One message to several agents. A NewGeneration is large: it is encoded once, and equal pointers are equal
// messages.
struct SendTo {
  std::vector<ConnectionId> connections;
  std::shared_ptr<const Message> message;
};
// An agent seems silent. Its messages may have arrived and wait to be read: answer with LastArrival.
struct AskArrival {
  ConnectionId connection = 0;
};
struct CloseConnection {
  ConnectionId connection = 0;
};
struct ProgressOut {  // new records only, in order of step; empty when only other fields changed
  Progress progress;
};
struct ReportChanged {};  // report() has a new value; not repeated until it is read
using CoordinatorOutput =
    std::variant<SendTo, AskArrival, CloseConnection, ProgressOut, ReportChanged, EventLine, GangBusyTimes>;

// A pure state machine: it has no clock, socket or thread. Not thread-safe.
class JobCoordinator {
 public:
  virtual ~JobCoordinator() = default;

  // REQUIRES: `now` does not decrease between calls.
  virtual void On(const CoordinatorEvent& event, Time now) = 0;
  // Returns the outputs since the last call. The caller performs them in order.
  virtual std::vector<CoordinatorOutput> Take() = 0;
  // When TimePassed is due; kNever: not before the next event.
  virtual Time next_wakeup() const = 0;
  // Costs time in proportion to the members when something has changed since the last call.
  virtual const Report& report() = 0;
  virtual GangPhase phase() const = 0;        // that of report(), at no cost
  virtual Generation generation() const = 0;  // the same
};

// Returns the kind of coordinator that the options ask for.
std::unique_ptr<JobCoordinator> MakeCoordinator(const CoordinatorOptions& options);

}  // namespace ringmaster::rendezvous
