// Moves the training state to members that do not have it, from all that do: piece p comes from source p mod
// n. Collective over a generation: every member calls with equal arguments (but for its own state). Thread
// rule: main thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

// `sources` ascending, not empty; their states are equal. Afterwards every member's state is present and
// equal; a receiver has compared hashes with the first source (kCorrupt when they differ).
Status ShareState(fabric::Communicator* comm, std::span<const int32_t> sources, TrainState* state);

}  // namespace ringmaster::trainer
