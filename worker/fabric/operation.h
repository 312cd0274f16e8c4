// SPDX-License-Identifier: Apache-2.0

// What a rank calls, in a form that its peers compare with their own call: ranks that call different
// operations get an error that names both. Value types and pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "worker/fabric/combine.h"

namespace ringmaster::fabric {

enum class OperationKind : uint8_t {
  kUnknown,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
  kTransfer,  // Send and Receive
};

struct Operation {
  uint32_t number = 0;  // of this call among the collectives of the generation
  uint32_t call = 0;    // kind, element type, reduction and root, as MakeCall packs them
  uint64_t bytes = 0;
  bool operator==(const Operation&) const = default;
};

// `combiner`: nullptr for operations that reduce nothing. `root`: -1 for operations without one.
uint32_t MakeCall(OperationKind kind, const Combiner* combiner = nullptr, int root = -1);

// Returns "all-reduce of 1024 bytes (float, max), number 7".
std::string Describe(const Operation& operation);

}  // namespace ringmaster::fabric
