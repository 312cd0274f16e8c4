// SPDX-License-Identifier: Apache-2.0

// The training state of a program as arrays of bytes: how members compare it, send it to a joining member,
// and keep it in checkpoints. A program describes its state when it is asked; the arrays are its own memory.
//
// Two arrays of the library go with those of the program: the rest of the program's state, as it was given
// (kMeta), and the exponents of the exact sums (kExponents).
//
// Not thread-safe; main thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::library {

struct StateArray {
  std::string name;
  std::string type;  // of an element, lower case: f32, bf16, i64, u8
  std::span<std::byte> bytes;
  bool parameter = false;  // part of the weights
};

inline constexpr const char* kMeta = "ringmaster.meta";
inline constexpr const char* kExponents = "ringmaster.exponents";
// Names with this prefix belong to the library.
inline constexpr const char* kReserved = "ringmaster.";

// As rendezvous::MemberStatus has them. `step` is part of the second one.
struct StateHashes {
  uint64_t params = 0;
  uint64_t others = 0;
  bool operator==(const StateHashes&) const = default;
};
// Computed by up to `threads` threads when the state is large; their number does not change the hashes.
StateHashes HashState(const std::vector<StateArray>& arrays, int64_t step, int threads = 1);

// As text, for checkpoints.
std::string TextOf(const StateHashes& hashes);

// A state in memory that it owns: received or loaded.
struct OwnedState {
  std::vector<std::pair<StateArray, std::vector<std::byte>>> arrays;
  // Appends an array of `bytes` zeros.
  StateArray& Add(std::string name, std::string type, size_t bytes, bool parameter);
  // Appends an array that has these bytes.
  StateArray& Add(std::string name, std::string type, std::vector<std::byte> memory, bool parameter);
  std::vector<StateArray> views() const;
};

// Sends the state from all `sources`, which are ascending and hold equal states, to all other ranks: source
// p mod n sends piece p. Collective among all members. `info` goes with it, from the first source.
Status SendState(fabric::Communicator* comm, std::span<const int32_t> sources,
                 const std::vector<StateArray>& arrays, const Json& info);
struct ReceivedState {
  OwnedState state;
  Json info;
};
// Errors: kCorrupt when a description makes no sense; those of the communicator.
Result<ReceivedState> ReceiveState(fabric::Communicator* comm, std::span<const int32_t> sources);

// The description of the arrays that checkpoints keep in their `meta`, and the arrays of a checkpoint, which
// keep their memory: a program that resumes has the state twice at most, that of the checkpoint and the one
// that it started with.
Json DescribeArrays(const std::vector<StateArray>& arrays);
Result<OwnedState> StateOf(checkpoint::Loaded loaded);

}  // namespace ringmaster::library
