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

// Only losses: all come from one communicator, in its order.
bool CanShrink(std::span<const Card> cards) {
  const Card& first = cards.front();
  int last = -1;
  for (const Card& card : cards) {
    if (card.parent == 0 || card.parent != first.parent || card.parent_world != first.parent_world)
      return false;
    if (card.parent_rank <= last || card.parent_rank >= card.parent_world) return false;
    last = card.parent_rank;
  }
  return true;
}

// Only newcomers, and last: NCCL leaves the parent's ranks as they are, and needs all of them.
bool CanGrow(std::span<const Card> cards) {
  const Card& first = cards.front();
  if (first.parent == 0 || first.parent_world < 2 || static_cast<size_t>(first.parent_world) >= cards.size())
    return false;
  const auto old = static_cast<size_t>(first.parent_world);
  for (size_t rank = 0; rank < old; ++rank) {
    const Card& card = cards[rank];
    if (card.parent != first.parent || card.parent_world != first.parent_world ||
        card.parent_rank != static_cast<int32_t>(rank) || card.may_grow == 0)
      return false;
  }
  return std::ranges::all_of(cards.subspan(old), [](const Card& card) { return card.parent == 0; });
}

std::vector<int> MissingRanks(std::span<const Card> cards) {
  std::vector<int> missing;
  size_t at = 0;
  for (int rank = 0; rank < cards.front().parent_world; ++rank) {
    if (at < cards.size() && cards[at].parent_rank == rank) {
      ++at;
    } else {
      missing.push_back(rank);
    }
  }
  return missing;
}

}  // namespace

Key KeyOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  Key key{};
  for (uint64_t half = 0; half < 2; ++half) {
    const uint64_t hash = Hash64(bytes, half);
    for (size_t i = 0; i < 8; ++i) key[half * 8 + i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return key;
}

Result<Plan> MakePlan(std::span<const Card> cards) {
  Plan plan;
  if (cards.size() == 1) {
    plan.way = Plan::Way::kAlone;
    return plan;
  }
  std::map<Key, size_t> owner;
  // NCCL refuses ranks whose host and place on the bus are equal. 2.30.7 compares a UUID instead, but the
  // whole GPU's. What lets instances through since 2.30 is a setting of the user's
  // (NCCL_MULTI_RANK_GPU_ENABLE) of which NVIDIA says that it is experimental and may hang.
  std::map<std::pair<Key, Key>, size_t> owner_of_place;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (card.version == 0 || cards[0].version == 0) {
      plan.way = Plan::Way::kNone;
      plan.why_none = fmt::format("rank {} has no NCCL", card.version == 0 ? rank : 0);
      return plan;
    }
    if (card.version != cards[0].version)
      return Error{Code::kInvalid,
                   fmt::format("rank 0 has NCCL {} and rank {} has {}: use one image for all workers",
                               VersionName(cards[0].version), rank, VersionName(card.version))};
    if (const auto [other, is_new] = owner.try_emplace(card.gpu, rank); !is_new) {
      plan.way = Plan::Way::kNone;
      plan.why_none = fmt::format("ranks {} and {} share a GPU, which NCCL refuses", other->second, rank);
      return plan;
    }
    if (const auto [other, is_new] = owner_of_place.try_emplace({card.host, card.bus}, rank); !is_new) {
      plan.way = Plan::Way::kNone;
      plan.why_none = fmt::format("ranks {} and {} have instances (MIG) of one GPU, which NCCL refuses",
                                  other->second, rank);
      return plan;
    }
    plan.one_host = plan.one_host && card.host == cards[0].host;
    plan.register_memory = plan.register_memory && card.own_memory != 0;
  }
  if (CanShrink(cards)) {
    plan.excluded = MissingRanks(cards);
    // The same members again: NCCL shrinks only by somebody.
    if (!plan.excluded.empty()) plan.way = Plan::Way::kShrink;
  } else if (CanGrow(cards)) {
    plan.way = Plan::Way::kGrow;
  }
  return plan;
}

}  // namespace ringmaster::fabric::nccl
