// SPDX-License-Identifier: Apache-2.0

// Mistakes to plant: the simulator compiles this library's sources a second time with RINGMASTER_MUTATIONS
// and turns on one mutation per run, to show that its invariants would notice. Everywhere else RM_MUTANT is
// false at compile time and nothing of it is left.
#pragma once

#ifdef RINGMASTER_MUTATIONS

namespace ringmaster::rendezvous {

enum class Mutation {
  kNone,
  kStatusNotFenced,      // coordinator: takes a MemberStatus of an older Prepare
  kAllAreSources,        // plan: everyone with state is a source, whatever its step
  kNoRollBackCheck,      // plan: leaders go back without asking whether they can
  kHashesIgnored,        // plan: nobody compares states
  kDeadNotRemembered,    // coordinator: takes a member back after it was left out
  kNoUpgrade,            // coordinator: a boundary Prepare never becomes an abort
  kHoldersNotAwaited,    // coordinator: starts from nothing while holders of state may come back
  kMinIgnored,           // coordinator: forms below min
  kMaxIgnored,           // coordinator: forms above max
  kLeaverNotKept,        // coordinator: lets the last holder of state leave without a checkpoint
  kStopNotAwaited,       // coordinator: reports stopped without waiting for Done
  kSilenceIgnored,       // coordinator: a silent agent is never taken for dead
  kStatusNotAwaited,     // coordinator: goes on without the answers of some members
  kStatusNoDeadline,     // coordinator: waits for ever for a status
  kGenerationReused,     // coordinator: a restarted round keeps its generation
  kTermIgnored,          // coordinator: the term is left out of the generation
  kMemberNotFenced,      // member: passes on what is older than what it has seen
  kMemberIdReused,       // member: a restarted trainer keeps its id
  kNothingRepeated,      // member: says nothing again on a new connection
  kCheckpointOutranked,  // plan: a state older than the checkpoint is used
  kCount,
};

extern thread_local Mutation planted_mutation;

}  // namespace ringmaster::rendezvous

#define RM_MUTANT(name) \
  (::ringmaster::rendezvous::planted_mutation == ::ringmaster::rendezvous::Mutation::name)

#else

#define RM_MUTANT(name) false

#endif
