// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/transfer.h"

#include <algorithm>

#include "worker/fabric/copy.h"

namespace ringmaster::fabric::shm {
namespace {

constexpr size_t kCheckBytes = 1 << 20;  // between two checks of the generation

size_t SlotOffset(uint64_t piece) { return kSendStaging + piece % kPieceSlots * kPieceBytes; }

}  // namespace

Status Transfers::Send(std::span<const std::byte> data, int peer) {
  if (data.empty()) return group_.Verify(peer);
  Cell& offer = group_.own().offers[peer];
  const std::atomic<uint64_t>& taken = group_.page(peer).takes[group_.rank()].count;
  uint64_t& offered = offered_[peer];
  const auto place = group_.domain().Find(data.data(), data.size());
  offer.descriptor = {place ? place->segment : 0, place ? place->offset : 0, data.size(), place ? 0u : 1u};
  if (place) {
    group_.StoreAndWake(offer.count, ++offered);
    return group_.AwaitWord(peer, taken, offered);
  }
  const uint64_t before = offered;
  for (size_t begin = 0; begin < data.size(); begin += kPieceBytes) {
    if (offered - before >= kPieceSlots) RM_TRY(group_.AwaitWord(peer, taken, offered - kPieceSlots + 1));
    CopyBytes(group_.domain().staging() + SlotOffset(offered), data.data() + begin,
              std::min(kPieceBytes, data.size() - begin));
    group_.StoreAndWake(offer.count, ++offered);
  }
  return group_.AwaitWord(peer, taken, offered);
}

Status Transfers::Receive(std::span<std::byte> data, int peer) {
  if (data.empty()) return group_.Verify(peer);
  const Cell& offer = group_.page(peer).offers[group_.rank()];
  std::atomic<uint64_t>& take = group_.own().takes[peer].count;
  uint64_t& taken = taken_[peer];
  RM_TRY(group_.AwaitWord(peer, offer.count, taken + 1));
  const Descriptor descriptor = offer.descriptor;
  RM_TRY(group_.Verify(peer));
  if (descriptor.bytes != data.size())
    return group_.Fail({Code::kInternal, fmt::format("rank {} sends {} bytes where {} are expected", peer,
                                                     descriptor.bytes, data.size())});
  if (descriptor.staged == 0) {
    const std::byte* source = group_.Data(peer, descriptor);
    if (source == nullptr)
      return group_.Fail(
          {Code::kInternal, fmt::format("rank {} sends memory that is not in its address", peer)});
    for (size_t at = 0; at < data.size(); at += kCheckBytes) {
      CopyBytes(data.data() + at, source + at, std::min(kCheckBytes, data.size() - at));
      RM_TRY(group_.Verify(peer));
    }
    group_.StoreAndWake(take, ++taken);
    return Ok();
  }
  for (size_t begin = 0; begin < data.size(); begin += kPieceBytes) {
    RM_TRY(group_.AwaitWord(peer, offer.count, taken + 1));
    CopyBytes(data.data() + begin, group_.Staging(peer, SlotOffset(taken)),
              std::min(kPieceBytes, data.size() - begin));
    RM_TRY(group_.Verify(peer));
    group_.StoreAndWake(take, ++taken);
  }
  return Ok();
}

}  // namespace ringmaster::fabric::shm
