// SPDX-License-Identifier: Apache-2.0

// Moves the training state to members that do not have it, from all that do: piece p comes from source p mod
// n. Collective over a generation: every member calls with equal arguments (but for its own state). Thread
// rule: main thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

// `sources` ascending, not empty; their states are equal. Afterwards every member's state is present and
// equal; a receiver has compared hashes with the first source (kCorrupt when they differ).
//
// `records`, of the newest steps, travel along: in of the first source, out on receivers. Whoever holds the
// state can so tell how it came about, when those who were there are gone.
Status ShareState(fabric::Communicator* comm, std::span<const int32_t> sources, TrainState* state,
                  std::vector<rendezvous::StepRecord>* records);

}  // namespace ringmaster::trainer
