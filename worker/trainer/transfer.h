// SPDX-License-Identifier: Apache-2.0

// Copies the training state from all members that have it to those that do not, while no member trains:
// source p mod n sends piece p. join_transfer.h does the same during training.
// Not thread-safe; main thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

// What a receiver learns before the arrays.
struct StateHead {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t position = 0;
  double loss = 0;
  uint64_t params_hash = 0;
  uint64_t optimizer_hash = 0;
  uint64_t records = 0;  // that follow
};
// Sends head and records of the state to `receivers`; ReceiveHead replaces `records`.
Status SendHead(fabric::Communicator* comm, std::span<const int32_t> receivers, TrainState* state,
                std::span<const rendezvous::StepRecord> records);
Result<StateHead> ReceiveHead(fabric::Communicator* comm, int32_t source,
                              std::vector<rendezvous::StepRecord>* records);

// Collective: every member calls it with the same `sources`. REQUIRES: `sources` is ascending and not empty,
// and the states of the sources are equal. Afterwards every member's state is present and equal. A receiver
// hashes what it has received and compares it with the first source's hashes. Errors: kCorrupt when they
// differ.
//
// `records`, those of the newest steps, travel with the state: input on the first source, output on
// receivers. So every holder of the state can report how it was reached, even after the members that computed
// it are dead.
Status ShareState(fabric::Communicator* comm, std::span<const int32_t> sources, TrainState* state,
                  std::vector<rendezvous::StepRecord>* records);

}  // namespace ringmaster::trainer
