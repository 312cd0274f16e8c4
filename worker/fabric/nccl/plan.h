// SPDX-License-Identifier: Apache-2.0

// How the members of a generation create their NCCL communicator: the facts that each member sends to the
// others over the host's fabric, and the plan that all of them derive from these facts, identically. Pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::fabric::nccl {

using Digest = std::array<uint8_t, 16>;  // of a text, to send it in fixed size
Digest DigestOf(std::string_view text);

// One member, sent as plain bytes: all members run the same build, which the checkpoint's fingerprint
// ensures.
struct MemberInfo {
  Digest gpu{};         // of its GPU's UUID
  Digest bus{};         // of its GPU's PCI address, which all instances (MIG) of one GPU share
  Digest host{};        // of its host id: equal where NCCL sees one machine
  uint64_t parent = 0;  // generation of the communicator that it has kept; 0: none
  int32_t parent_rank = 0;
  int32_t parent_world = 0;
  int32_t version = 0;     // of its NCCL; 0: none
  int16_t growable = 0;    // 1: its parent can grow, not only shrink
  int8_t nccl_memory = 0;  // 1: NCCL allocated all memory of its operations
  int8_t shares_gpu = 0;   // 1: NCCL_MULTI_RANK_GPU_ENABLE is set, and its NCCL knows that
};
static_assert(sizeof(MemberInfo) == 72);

struct Plan {
  enum class Method : uint8_t {
    kNone,    // NCCL is not available for this group; see why_none
    kSingle,  // a world of one needs no library
    kInit,    // from scratch
    kShrink,  // the parent, by `excluded`
    kGrow,    // the parent
  } method = Method::kInit;
  std::string why_none;
  std::vector<int> excluded;  // ranks of the parent, ascending
  bool one_host = true;
  // All members register their memory, or none: NCCL's user guide calls memory that is registered only at
  // some ranks undefined behaviour, and NCCL silently skips memory that it did not allocate.
  bool register_memory = true;
  bool operator==(const Plan&) const = default;
};

// `members` by rank. Errors: kInvalid when NCCL versions differ, since these do not interoperate.
Result<Plan> MakePlan(std::span<const MemberInfo> members);

}  // namespace ringmaster::fabric::nccl
