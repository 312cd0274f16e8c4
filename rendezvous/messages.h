// SPDX-License-Identifier: Apache-2.0

// What agents and the coordinator say to each other, as values. The same structs travel on the inner channel
// between an agent and its trainer, so an agent mostly relays. codec.h turns them into frames.
//
// A *member* is one incarnation of one trainer process: a fresh id each time it starts. An *agent* lives as
// long as its pod. A *generation* is one membership: (term << 32) | sequence, monotone, never reused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ringmaster::rendezvous {

using Generation = uint64_t;

// ---- agent -> coordinator
// -----------------------------------------------------------------------------------------

// First message of a connection. A wrong secret closes it.
struct Hello {
  std::string job;  // namespace/name
  std::string pod;
  std::string agent;      // uuid of this agent process
  std::string secret;     // per-run secret; in the cluster the projected token
  int64_t attempt = 0;    // of the pod set this pod belongs to; 0: there is only one (`ringmaster run`)
  int32_t slot = 0;       // which of its pod's trainers this agent keeps
  std::string node = {};  // where its pod runs; empty: not told
  bool operator==(const Hello&) const = default;
};

// A trainer is up, holds no training state and can take part.
struct Join {
  std::string member;
  std::string address;  // of its fabric, opaque
  bool operator==(const Join&) const = default;
};

// Answer to Prepare: the trainer stands still at a commit boundary.
struct MemberStatus {
  Generation generation = 0;  // of the Prepare that is answered
  std::string member;
  bool has_state = false;
  int64_t step = 0;            // committed steps
  bool can_roll_back = false;  // to step - 1
  uint64_t params_hash = 0;    // of the state at `step`
  uint64_t optimizer_hash = 0;
  bool operator==(const MemberStatus&) const = default;
};

// A trainer is gone (or must be taken as gone). Evidence: mutex | exit | hang | stopped | eof | silence |
// corrupt.
struct Down {
  std::string member;
  std::string evidence;
  int32_t exit_code = 0;  // 128 + signal for signals
  std::string message;
  bool operator==(const Down&) const = default;
};

// Planned leave (SIGTERM, drain, scale down): take this agent's member out at the next commit boundary.
struct Leave {
  std::string reason;
  bool operator==(const Leave&) const = default;
};

// One committed step. The loss is a mean over the step's samples; both norms and loss are bit-equal on every
// member.
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

// From rank 0, batched. After a change of generation the new rank 0 repeats its newest records: receivers
// keep the first record of each step.
struct Progress {
  std::vector<StepRecord> records;
  int64_t total_steps = 0;
  std::optional<int64_t> checkpoint_step;         // newest published checkpoint
  std::optional<std::string> checkpoint_failure;  // why the newest one could not be written
  std::string note;                               // for people: "validating"
  std::string transport;  // what carries this generation's gradients; transport_name.h
  bool operator==(const Progress&) const = default;
};

// The job is complete, or stopped by order at a boundary; durable in both cases (checkpoint published), if it
// keeps checkpoints at all.
struct Done {
  bool finished = false;  // false: stopped early by Prepare{stop}
  int64_t step = 0;
  double loss = 0;
  double validation_loss = 0;
  std::optional<double> validation_accuracy;
  std::string weights_hash;
  std::string optimizer_hash;
  bool saved = true;  // there is a checkpoint of `step`
  bool operator==(const Done&) const = default;
};

// The trainer cannot go on, and no restart would help: bad data path, vocabulary mismatch, foreign
// checkpoint.
struct Fatal {
  int32_t exit_code = 64;
  std::string message;
  bool operator==(const Fatal&) const = default;
};

// What a trainer computes on, for people and metrics. Before Join, and again when the troubles change.
struct Facts {
  std::string device;  // "NVIDIA H200"
  std::string driver;
  std::string nic;                    // the nearest one to the device: "mlx5_0:1"; empty: none
  std::vector<std::string> troubles;  // as they are now: "gpu 0: its clocks are held down: ..."
  bool operator==(const Facts&) const = default;
};

struct Ping {
  bool operator==(const Ping&) const = default;
};

// ---- coordinator -> agent
// -----------------------------------------------------------------------------------------

struct Welcome {
  std::string job;
  bool operator==(const Welcome&) const = default;
};

enum class Urgency : uint8_t {
  kAbort,     // somebody is gone: stop now, whatever is in flight fails
  kBoundary,  // finish the step together (agreed in band), then stand still
};

// Stand still and answer with MemberStatus{generation}. A newer Prepare replaces an older one.
struct Prepare {
  Generation generation = 0;
  Urgency urgency = Urgency::kAbort;
  bool stop = false;  // after standing still: write a checkpoint (one of the members with state), then
                      // Done{finished=false}
  bool operator==(const Prepare&) const = default;
};

struct Member {
  std::string id;
  std::string pod;
  std::string address;
  bool operator==(const Member&) const = default;
};

// The new membership. Rank = index in `members`. Ranks in `sources` hold the state of `start_step` (after
// rolling back by one where their status said start_step + 1); everyone else fetches it from them. With no
// source, rank 0 loads the newest good checkpoint or initialises from the seed, and is the source; start_step
// is then -1.
struct NewGeneration {
  Generation generation = 0;
  std::vector<Member> members;
  std::vector<int32_t> sources;
  int64_t start_step = -1;
  bool stop = false;  // see Prepare::stop
  bool operator==(const NewGeneration&) const = default;
};

// This member is not part of the job any more (it was taken for dead): end the trainer, start a fresh one.
struct Evict {
  std::string member;
  std::string reason;
  bool operator==(const Evict&) const = default;
};

// The agent ends with this exit code: the job is done, or this pod left by plan.
struct Exit {
  int32_t code = 0;
  std::string reason;
  bool operator==(const Exit&) const = default;
};

using Message = std::variant<Hello, Join, MemberStatus, Down, Leave, Progress, Done, Fatal, Ping, Welcome,
                             Prepare, NewGeneration, Evict, Exit, Facts>;

}  // namespace ringmaster::rendezvous
