// SPDX-License-Identifier: Apache-2.0

// Comparison of the training state of a generation's members: they must hold the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

// A part of what the members must have in common: "parameters", the name of an array.
struct StatePart {
  std::string name;
  uint64_t hash = 0;
};

// Collective: compares the parts of all members. Returns empty text if they are equal, otherwise which parts
// of which workers differ. All members get text, or all get none. `parts` empty: this member has no state,
// and is not compared. `workers`: for people, by rank.
Result<std::string> CompareStates(fabric::Communicator* comm, std::span<const StatePart> parts,
                                  std::span<const std::string> workers);

}  // namespace ringmaster::trainer
