// SPDX-License-Identifier: Apache-2.0

// How the members of a generation come to a communicator of NCCL: what each tells the others over the host's
// fabric, and what all of them conclude from it, equally. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::fabric::nccl {

using Digest = std::array<uint8_t, 16>;
Digest DigestOf(std::string_view text);

// One member, as plain bytes on the wire: all run the same build (the checkpoint's fingerprint sees to that).
struct MemberInfo {
  Digest gpu{};         // of its UUID
  Digest bus{};         // of the GPU's place on its host's bus, which instances of one GPU (MIG) share
  Digest host{};        // what NCCL takes for one machine
  uint64_t parent = 0;  // generation of the communicator that it has kept; 0: none
  int32_t parent_rank = 0;
  int32_t parent_world = 0;
  int32_t version = 0;      // of its NCCL; 0: it has none
  int16_t growable = 0;     // 1: members may be added to its parent, and not only taken away
  int16_t nccl_memory = 0;  // 1: all that its operations will be on is NCCL's own
};
static_assert(sizeof(MemberInfo) == 72);

struct Plan {
  enum class Method : uint8_t {
    kNone,    // NCCL is not to be had for this group
    kSingle,  // a world of one needs no library
    kInit,
    kShrink,
    kGrow,
  } method = Method::kInit;
  std::string why_none;
  std::vector<int> excluded;  // ranks of the parent, ascending
  bool one_host = true;
  // Memory that is registered at some ranks and not at others is undefined behaviour by NCCL's user guide,
  // and memory of CUDA's is passed over at registering, here and there: all of them, or none.
  bool register_memory = true;
  bool operator==(const Plan&) const = default;
};

// Members by rank. kInvalid when their versions differ: they would not understand each other.
Result<Plan> MakePlan(std::span<const MemberInfo> members);

}  // namespace ringmaster::fabric::nccl
