// SPDX-License-Identifier: Apache-2.0

// Orders the failures of one gang: some are causes, others are what survivors do when a peer is gone. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/messages.h"
#include "rendezvous/report.h"

namespace ringmaster::rendezvous {

// How likely it is that a program ended like this because it lost a peer, whatever order reports arrive in. A
// survivor notices a death within a millisecond, and a busy machine may run its agent first.
enum class Suspicion : uint8_t {
  kRoot,         // killed, or a crash in machine code
  kUnknown,      // an exit code of the program's own
  kConsequence,  // what frameworks and launchers do when a peer is lost, or after SIGTERM
};

// REQUIRES: the state says how a program ended, with an exit code other than 0.
Suspicion SuspicionOf(const ProgramState& state);

// Returns the failure for people: "train-1-0 failed (its program ended, exit code 1): disk full".
std::string DescribeEnd(const FailureRecord& record);

}  // namespace ringmaster::rendezvous
