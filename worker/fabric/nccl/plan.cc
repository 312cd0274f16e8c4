// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/hash.h"
#include "worker/fabric/nccl/api.h"

namespace ringmaster::fabric::nccl {
namespace {

// Members were only lost: all have the same parent, in the order of its ranks.
bool CanShrink(std::span<const MemberInfo> members) {
  const MemberInfo& first = members.front();
  int last = -1;
  for (const MemberInfo& member : members) {
    if (member.parent == 0 || member.parent != first.parent || member.parent_world != first.parent_world)
      return false;
    if (member.parent_rank <= last || member.parent_rank >= member.parent_world) return false;
    last = member.parent_rank;
  }
  return true;
}

// Members were only added, and last: NCCL keeps the parent's ranks and needs all of them.
bool CanGrow(std::span<const MemberInfo> members) {
  const MemberInfo& first = members.front();
  if (first.parent == 0 || first.parent_world < 2 ||
      static_cast<size_t>(first.parent_world) >= members.size())
    return false;
  const auto old = static_cast<size_t>(first.parent_world);
  for (size_t rank = 0; rank < old; ++rank) {
    const MemberInfo& member = members[rank];
    if (member.parent != first.parent || member.parent_world != first.parent_world ||
        member.parent_rank != static_cast<int32_t>(rank) || member.growable == 0)
      return false;
  }
  return std::ranges::all_of(members.subspan(old),
                             [](const MemberInfo& member) { return member.parent == 0; });
}

std::vector<int> MissingRanks(std::span<const MemberInfo> members) {
  std::vector<int> missing;
  size_t at = 0;
  for (int rank = 0; rank < members.front().parent_world; ++rank) {
    if (at < members.size() && members[at].parent_rank == rank) {
      ++at;
    } else {
      missing.push_back(rank);
    }
  }
  return missing;
}

}  // namespace

Digest DigestOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  Digest key{};
  for (uint64_t half = 0; half < 2; ++half) {
    const uint64_t hash = Hash64(bytes, half);
    for (size_t i = 0; i < 8; ++i) key[half * 8 + i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return key;
}

Result<Plan> MakePlan(std::span<const MemberInfo> members) {
  Plan plan;
  if (members.size() == 1) {
    plan.method = Plan::Method::kSingle;
    return plan;
  }
  std::map<Digest, size_t> owner;
  // NCCL refuses ranks whose host and PCI address are equal (2.30.7 compares the UUID of the whole GPU
  // instead), unless the user sets NCCL_MULTI_RANK_GPU_ENABLE for all, which NVIDIA calls experimental and
  // says may hang.
  const bool may_share =
      std::ranges::all_of(members, [](const MemberInfo& member) { return member.shares_gpu != 0; });
  std::map<std::pair<Digest, Digest>, size_t> owner_of_place;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const MemberInfo& member = members[rank];
    if (member.version == 0 || members[0].version == 0) {
      plan.method = Plan::Method::kNone;
      plan.why_none = fmt::format("rank {} has no NCCL", member.version == 0 ? rank : 0);
      return plan;
    }
    if (member.version != members[0].version)
      return Error{Code::kInvalid,
                   fmt::format("rank 0 has NCCL {} and rank {} has {}: use one image for all workers",
                               VersionName(members[0].version), rank, VersionName(member.version))};
    if (const auto [other, is_new] = owner.try_emplace(member.gpu, rank); !is_new && !may_share) {
      plan.method = Plan::Method::kNone;
      plan.why_none = fmt::format("ranks {} and {} share a GPU, which NCCL refuses", other->second, rank);
      return plan;
    }
    if (const auto [other, is_new] = owner_of_place.try_emplace({member.host, member.bus}, rank);
        !is_new && !may_share) {
      plan.method = Plan::Method::kNone;
      plan.why_none = fmt::format("ranks {} and {} have instances (MIG) of one GPU, which NCCL refuses",
                                  other->second, rank);
      return plan;
    }
    plan.one_host = plan.one_host && member.host == members[0].host;
    plan.register_memory = plan.register_memory && member.nccl_memory != 0;
  }
  if (CanShrink(members)) {
    plan.excluded = MissingRanks(members);
    // With the same members again there is nothing to exclude, and NCCL refuses to shrink by nothing.
    if (!plan.excluded.empty()) plan.method = Plan::Method::kShrink;
  } else if (CanGrow(members)) {
    plan.method = Plan::Method::kGrow;
  }
  return plan;
}

}  // namespace ringmaster::fabric::nccl
