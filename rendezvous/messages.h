// SPDX-License-Identifier: Apache-2.0

// The messages between agents and the coordinator, as values. The channel between an agent and its trainer
// carries the same structs, so the agent forwards most of them unchanged. codec.h converts them to frames.
//
// A *member* is one incarnation of one trainer process: each start gets a new id. An *agent* lives as long as
// its pod. A *generation* is one membership: (term << 32) | sequence, monotone, never reused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/exit_codes.h"

namespace ringmaster::rendezvous {

using Generation = uint64_t;

// ---- agent -> coordinator
// -----------------------------------------------------------------------------------------

// First message of a connection. A wrong secret closes it.
struct Hello {
  std::string job;  // namespace/name
  std::string pod;
  std::string agent;      // UUID of this agent process
  std::string secret;     // per-run secret; in the cluster the projected token
  int64_t attempt = 0;    // attempt of the pod; 0: attempts are not used (`ringmaster run`)
  int32_t slot = 0;       // which of its pod's trainers this agent supervises
  std::string node = {};  // node of the pod; empty: unknown
  std::string role = {};  // of the pod; empty: worker (programs only)
  // The agent answers CheckPeers (programs only). Agents of earlier builds leave it out.
  bool checks_peers = false;
  bool operator==(const Hello&) const = default;
};

// What the members of a generation must have in common: otherwise results would depend on which of them
// computed what. Opaque; the coordinator compares them.
struct Fingerprints {
  std::string job;     // of the configuration
  std::string data;    // of the content of the data
  std::string device;  // "cpu avx512"
  bool operator==(const Fingerprints&) const = default;
};

// A trainer is up, holds no training state and is ready to become a member.
struct Join {
  std::string member;
  std::string address;  // of its fabric endpoint, opaque
  Fingerprints fingerprints = {};
  // The newest Prepare that its agent has received; 0: none. A coordinator whose term was used before counts
  // on from it.
  Generation newest = 0;
  bool operator==(const Join&) const = default;
};

// Answer to Prepare: the trainer has paused at a commit boundary.
struct MemberStatus {
  Generation generation = 0;  // generation of the Prepare
  std::string member;
  bool has_state = false;
  int64_t step = 0;            // committed steps
  bool can_roll_back = false;  // to step - 1
  uint64_t params_hash = 0;    // of the state at `step`, computed when it was committed
  uint64_t optimizer_hash = 0;
  // Answer to Prepare::find_checkpoint: the step of the newest checkpoint that this member can see, -1 for
  // none, and for people where it looked and what it skipped.
  int64_t checkpoint_step = -1;
  std::string checkpoint_text = {};
  bool looking = false;  // its storage is slow: the answer comes with a later Prepare
  // If can_roll_back: of the state at `step` - 1. 0 from members that do not know it.
  uint64_t undo_params_hash = 0;
  uint64_t undo_optimizer_hash = 0;
  bool operator==(const MemberStatus&) const = default;
};

// A trainer is dead or must be treated as dead. Evidence: mutex | exit | hang | stopped | eof | silence |
// corrupt.
struct Down {
  std::string member;
  std::string evidence;
  int32_t exit_code = 0;  // 128 + signal when a signal ended it
  std::string message;
  bool operator==(const Down&) const = default;
};

// An operation between the members of `generation` failed, or takes so long that it must have failed. The
// trainer keeps its state and waits for an order, however long the coordinator is away.
struct OperationFailed {
  Generation generation = 0;
  std::string member;
  std::string message;
  bool permanent = false;  // another attempt with the same members would fail as well
  // Then: the ranks to which no transport leads. Empty from builds that did not name them.
  std::vector<int32_t> unreachable = {};
  // Nothing failed, but the members found that their states differ; `message` names the odd one and what
  // differs.
  bool diverged = false;
  bool operator==(const OperationFailed&) const = default;
};

// Planned leave (SIGTERM, drain, scale down): take this agent's member out at the next commit boundary.
struct Leave {
  std::string reason;
  bool operator==(const Leave&) const = default;
};

// One committed step. `loss` is the mean over the step's samples. Loss and gradient norm have the same bits
// on every member.
struct StepRecord {
  int64_t step = 0;  // 1 for the first committed step
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  int64_t samples = 0;  // of this step
  Generation generation = 0;
  int32_t workers = 0;
  double seconds = 0;  // since the previous commit, on the reporting member
  bool operator==(const StepRecord&) const = default;
};

// What the validation samples say about the weights after `step`.
struct ValidationResult {
  int64_t step = 0;
  double loss = 0;
  std::optional<double> accuracy;
  bool operator==(const ValidationResult&) const = default;
};

// A trainer keeps this many of its newest records, and an agent repeats as many on a new connection: what a
// coordinator may have lost is what was committed while it was away, and in batches that were under way.
inline constexpr size_t kKeptRecords = 2048;
inline constexpr int32_t kRecordsPerMessage = 32;  // of an agent: about 8 KiB

// Sent in batches by rank 0. In a new generation, the new rank 0 repeats its newest records: receivers keep
// the first record of each step.
struct Progress {
  std::vector<StepRecord> records;
  int64_t total_steps = 0;
  std::optional<int64_t> checkpoint_step;         // newest published checkpoint
  std::optional<std::string> checkpoint_failure;  // why the newest one could not be written
  std::string note;                               // for users: "validating"
  std::string transport;  // transports that carry this generation's gradients; transport_name.h
  std::optional<ValidationResult> validation = {};  // during training; Done has that after the last step
  // Why a checkpoint that is newer than the one that this member has loaded could not be used.
  std::optional<std::string> damaged_checkpoint = {};
  std::optional<int64_t> seconds_left = {};  // until the end of training, as the program estimates it
  bool operator==(const Progress&) const = default;
};

// The job is complete, or stopped on request at a boundary. In both cases a checkpoint is published, unless
// the job keeps none.
struct Done {
  bool finished = false;  // false: stopped early by Prepare{stop}
  int64_t step = 0;
  double loss = 0;
  double validation_loss = 0;  // NaN: there is none, or a program reports it by itself
  std::optional<double> validation_accuracy;
  std::string weights_hash;
  std::string optimizer_hash;
  bool saved = true;  // a checkpoint of `step` exists
  bool operator==(const Done&) const = default;
};

// The trainer cannot continue, and a restart of it would not help: wrong data path, vocabulary mismatch, a
// checkpoint of another model. The coordinator decides whether the job or this worker is at fault, and
// answers with Exit or Evict.
struct Fatal {
  int32_t exit_code = kExitBadInput;
  std::string message;
  std::string member = {};
  bool joined = false;  // it had sent Join
  bool operator==(const Fatal&) const = default;
};

// The device that a trainer computes on, for users and metrics. Sent before Join, and again when
// device_faults changes.
struct Facts {
  std::string device;  // "NVIDIA H200"
  std::string driver;
  std::string nic;                         // the one nearest to the device: "mlx5_0:1"; empty: none
  std::vector<std::string> device_faults;  // current ones: "gpu 0: its clocks are held down: ..."
  bool operator==(const Facts&) const = default;
};

// How long a trainer was busy in the steps that it has committed since its last report: the time of a step
// without the time that it waited for its peers. Waiting for the device and for training data counts.
struct BusyTime {
  Generation generation = 0;
  int64_t step = 0;           // the newest of the steps
  int64_t steps = 0;          // at least 1
  double seconds = 0;         // mean of a step
  double longest = 0;         // the longest step, in seconds
  int32_t micro_batches = 0;  // that it computes in each step
  bool operator==(const BusyTime&) const = default;
};

struct Ping {
  // About once per second, when steps were committed. Agents of earlier builds leave it out.
  std::optional<BusyTime> busy = {};
  bool operator==(const Ping&) const = default;
};

// On a shared connection: this slot has no agent any more (to the coordinator), or the agent must end its
// connection (from it). Another Hello of the slot may follow.
struct Bye {
  bool operator==(const Bye&) const = default;
};

// ---- coordinator -> agent
// -----------------------------------------------------------------------------------------

struct Welcome {
  std::string job;
  // The connection may carry all slots of the pod (Route in codec.h): one Hello for each, the first of them
  // with the secret. Coordinators of earlier builds leave it out.
  bool shared = false;
  bool operator==(const Welcome&) const = default;
};

enum class Urgency : uint8_t {
  kAbort,     // a member is lost: stop now; operations in flight fail
  kBoundary,  // finish the current step together (agreed in band), then pause
};

// Pause and answer with MemberStatus{generation}. A newer Prepare replaces an older one.
struct Prepare {
  Generation generation = 0;
  Urgency urgency = Urgency::kAbort;
  // The job stops: the next generation's only work is to write a checkpoint and to send Done{finished=false}.
  bool stop = false;
  bool find_checkpoint = false;  // no holder of the state is known: the status says what could be loaded
  bool operator==(const Prepare&) const = default;
};

struct Member {
  std::string id;
  std::string pod;
  std::string address;
  std::string role = {};  // empty: worker; its index is the position among the members of its role
  std::string key = {};   // ProgramState::key
  int32_t joined = 0;  // StartProgram::version when it joined an incarnation that ran; 0: it started with it
  bool operator==(const Member&) const = default;
};

// The new membership. The rank is the index in `members`. Ranks in `sources` hold the state of `start_step`
// (after a roll-back by one step where their status reported start_step + 1); all other ranks fetch it from
// them. Without a source, start_step is -1: the loader loads the newest valid checkpoint or initializes from
// the seed, and is then the source.
struct NewGeneration {
  Generation generation = 0;
  std::vector<Member> members;
  std::vector<int32_t> sources;
  int64_t start_step = -1;
  bool stop = false;  // see Prepare::stop
  // Of the state of start_step, by the vote of its holders: a member that fetches compares with them what it
  // has received. 0 without a source.
  uint64_t params_hash = 0;
  uint64_t optimizer_hash = 0;
  // Ranks that are not sources fetch the state before the first step. Otherwise they may fetch it while the
  // sources train.
  bool fetch_first = false;
  int32_t loader = 0;  // rank that loads, if there is no source
  // A checkpoint of this step is known to exist: the loader must not start from an older state. -1: none.
  int64_t checkpoint_floor = -1;
  bool operator==(const NewGeneration&) const = default;
};

// The member is no longer part of the job, because it was treated as dead: kill the trainer and start a new
// one.
struct Evict {
  std::string member;
  std::string reason;
  bool refused = false;  // a trainer on another node may fit; one started here again probably does not
  bool operator==(const Evict&) const = default;
};

// The agent exits with this code: the job has ended, or this pod left by plan.
struct Exit {
  int32_t code = 0;
  std::string reason;
  // The work of the job is done, so the agent leaves kFinishedNote. Coordinators of earlier builds leave it
  // out.
  bool finished = false;
  // All steps are done, and the program of the user may do the rest of its work: the agent reports the end of
  // the program by Down, and waits for another Exit. Coordinators of earlier builds leave it out.
  bool after_program = false;
  bool operator==(const Exit&) const = default;
};

// The last line of the termination message of an agent whose job is finished. A coordinator may end before
// its report of that is recorded; then the pods still show it. An agent that leaves by plan exits with 0,
// too.
inline constexpr std::string_view kFinishedNote = "ringmaster: the job is finished";

// ---- programs
// -----------------------------------------------------------------------------------------
//
// An agent can also run the program of a user, which knows nothing of these messages. An *incarnation* is one
// life of the gang's programs: all start together, and when one fails, all are stopped. It has the number of
// a generation. A role may allow its programs to start again alone: each start of a rank within one
// incarnation is a *life*. Both sides repeat their whole state after every change and on every new
// connection, so no message is needed twice and none must arrive.

enum class ProgramPhase : uint8_t {
  kIdle,      // ready to start; a program that ran before was stopped by an order
  kRunning,   // runs as `rank` of `generation`
  kStopping,  // the same, and an order to stop is carried out
  kEnded,     // it ended by itself, or could not be started
};

// How many processes that a launcher started have ended with exit code 0 as rank `rank` of `size`. A program
// may start them several times.
struct RankCount {
  int32_t size = 0;
  int32_t rank = 0;
  int32_t count = 0;
  bool operator==(const RankCount&) const = default;
};

// What an agent reports: the newest incarnation in which it took part, and what became of its program.
struct ProgramState {
  ProgramPhase phase = ProgramPhase::kIdle;
  Generation generation = 0;  // 0: none
  int32_t rank = 0;
  int32_t world = 0;         // ranks of that incarnation
  std::string address = {};  // where other ranks reach the next program: host:port
  // How it ended, of kEnded. A program that has failed, and of which some process has not ended yet, is
  // kRunning or kStopping with evidence.
  int32_t exit_code = 0;      // 128 + signal when a signal ended it
  std::string evidence = {};  // exit | hang | start | launcher (its ranks: exit)
  std::string message = {};   // for people: the last line of its output
  int64_t ended_us = 0;       // how long ago, when this was sent
  int32_t life = 0;           // how often this rank was started again in that incarnation
  // Who knows it may start processes in the next program of this agent (frameworks with a launcher). Only the
  // members of the incarnation get it. Empty: no process may.
  std::string key = {};
  std::vector<RankCount> ranks = {};  // that ran in this program (frameworks with a launcher)
  int32_t open_ranks = 0;             // that have started in it and not ended with exit code 0
  int32_t version = 0;                // the newest StartProgram::version that it has received
  // The processes that have survived SIGKILL for a while, for people: "pid 77 (cat), state D". Agents of
  // earlier builds leave it out.
  std::string survivors = {};
  bool operator==(const ProgramState&) const = default;
};

// The incarnation starts. The rank is the index in `members`; Member::id is the agent.
struct StartProgram {
  Generation generation = 0;
  std::vector<Member> members;
  int32_t life = 0;  // above 0: start this rank again, alone
  // Increases when the members of a running incarnation change (ProgramPolicy::live_workers). A launcher that
  // runs gets the new members and runs on. The rank of a worker that joins means nothing.
  int32_t version = 0;
  bool operator==(const StartProgram&) const = default;
};

// No program of this incarnation or of an older one may run: SIGTERM, and after `grace_ms` SIGKILL.
struct StopProgram {
  Generation generation = 0;
  int64_t grace_ms = 0;
  bool operator==(const StopProgram&) const = default;
};

// The check of the network before the first incarnation (network_check.h). All members take each step before
// any of them takes the next one: whatever is refused has a listener, and no listener lasts until a program
// starts.
enum class CheckStep : uint8_t {
  kListen,   // listen on the port of the next program
  kConnect,  // connect to the address of every other member
  kEnd,      // stop listening
};

// Only for agents with Hello::checks_peers whose program does not run.
struct CheckPeers {
  uint64_t number = 0;  // of the check: increases, also from one coordinator to the next
  CheckStep step = CheckStep::kListen;
  std::vector<Member> members = {};  // of kConnect; one of them is the agent
  bool operator==(const CheckPeers&) const = default;
};

struct UnreachablePeer {
  int32_t peer = 0;  // index in CheckPeers::members
  std::string why;   // "timed out after 5 s"
  bool operator==(const UnreachablePeer&) const = default;
};

// After this many peers that it cannot reach, an agent does not try the others.
inline constexpr size_t kMaxUnreachablePeers = 16;

// Answer to CheckPeers: the step is done.
struct PeersChecked {
  uint64_t number = 0;
  CheckStep step = CheckStep::kListen;
  std::vector<UnreachablePeer> unreachable = {};  // of kConnect
  std::string failure = {};                       // of kListen: why no peer can reach this agent
  bool operator==(const PeersChecked&) const = default;
};

using Message = std::variant<Hello, Join, MemberStatus, Down, Leave, Progress, Done, Fatal, Ping, Welcome,
                             Prepare, NewGeneration, Evict, Exit, Facts, OperationFailed, Bye, ProgramState,
                             StartProgram, StopProgram, CheckPeers, PeersChecked>;

}  // namespace ringmaster::rendezvous
