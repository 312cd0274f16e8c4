// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/collectives.h"

#include <algorithm>
#include <vector>

#include "worker/fabric/copy.h"
#include "worker/fabric/operation.h"

namespace ringmaster::fabric::shm {
namespace {

constexpr size_t kLine = 64;
// Up to here every rank sums everything: it reads more, and waits once.
constexpr size_t kAtOnceBytes = 64 << 10;   // of each rank
constexpr size_t kAtOnceReads = 256 << 10;  // of all ranks
static_assert(kAtOnceBytes <= kPieceBytes);
// A rank's share of one piece of a large reduction: small enough that the sum is still in a cache when peers
// read it.
constexpr size_t kShareBytes = 256 << 10;
constexpr size_t kBlockBytes = 8 << 10;  // fits into the first-level cache
constexpr size_t kCopyBytes = 1 << 20;   // between two checks of the generation

struct Range {
  size_t begin;
  size_t length;
};

// Share `q` of `total` bytes, cut at cache lines so that no two ranks write the same one.
Range Share(size_t total, int q, int world) {
  const size_t each = (total / world + (total % world != 0) + kLine - 1) / kLine * kLine;
  const size_t begin = std::min(total, each * q);
  return {begin, std::min(each, total - begin)};
}

}  // namespace

uint64_t Collectives::Announce(uint32_t call, uint64_t bytes) {
  half_ = 1 - half_;
  group_.own().operations[half_] = {operations_++, call, bytes};
  return half_;
}

Status Collectives::Skip() {
  ++operations_;
  return group_.VerifyAll();
}

Status Collectives::CompareCalls() {
  const Operation own = group_.own().operations[half_];
  for (int q = 0; q < group_.world(); ++q) {
    // Copy it before comparing it: a peer that has left the generation may change it any time.
    const Operation other = group_.page(q).operations[half_];
    if (other == own) continue;
    RM_TRY(group_.VerifyAll());
    return group_.Fail(
        {Code::kInternal, fmt::format("the ranks call different operations: {} here, {} at rank {}",
                                      Describe(own), Describe(other), q)});
  }
  return Ok();
}

Result<bool> Collectives::Begin(std::span<const std::byte> data, uint32_t call, int source) {
  const uint64_t half = Announce(call, data.size());
  Descriptor& own = group_.own().descriptors[half];
  const auto place = group_.domain().Find(data.data(), data.size());
  own = {place ? place->segment : 0, place ? place->offset : 0, data.size(), place ? 0u : 1u};
  RM_TRY(group_.AwaitAll(group_.Publish()));
  RM_TRY(CompareCalls());
  // Copy the descriptors before using them, as in CompareCalls.
  std::vector<Descriptor> all(group_.world());
  for (int q = 0; q < group_.world(); ++q) all[q] = group_.page(q).descriptors[half];
  RM_TRY(group_.VerifyAll());
  bool direct = true;
  published_.assign(group_.world(), nullptr);
  for (int q = 0; q < group_.world(); ++q) {
    if (source >= 0 && source != q) continue;
    published_[q] = q == group_.rank() ? data.data() : group_.Data(q, all[q]);
    if (all[q].staged != 0) {
      direct = false;
    } else if (published_[q] == nullptr) {
      return group_.Fail(
          {Code::kInternal, fmt::format("rank {} publishes memory that is not in its address", q)});
    }
  }
  return direct;
}

Status Collectives::End() {
  RM_TRY(group_.VerifyAll());
  return group_.AwaitAll(group_.Publish());
}

std::byte* Collectives::OwnStaging(size_t piece, size_t offset) {
  return group_.domain().staging() + kCollectiveStaging + piece % kPieceSlots * kPieceBytes + offset;
}

const std::byte* Collectives::Staging(int q, size_t piece, size_t offset) {
  return group_.Staging(q, kCollectiveStaging + piece % kPieceSlots * kPieceBytes + offset);
}

Status Collectives::Copy(int q, std::byte* dst, const std::byte* src, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCopyBytes) {
    CopyBytes(dst + at, src + at, std::min(kCopyBytes, bytes - at));
    RM_TRY(group_.Verify(q));
  }
  return Ok();
}

Status Collectives::Barrier() {
  Announce(MakeCall(OperationKind::kBarrier), 0);
  RM_TRY(group_.AwaitAll(group_.Publish()));
  return CompareCalls();
}

Status Collectives::SmallReduce(std::span<std::byte> data, const Combiner& combiner, uint32_t call) {
  const uint64_t half = Announce(call, data.size());
  CopyBytes(group_.own().small[half].data, data.data(), data.size());
  RM_TRY(group_.AwaitAll(group_.Publish()));
  RM_TRY(CompareCalls());
  const std::byte* sources[kMaxRanks];
  for (int q = 0; q < group_.world(); ++q) sources[q] = group_.page(q).small[half].data;
  combiner.Combine(data.data(), {sources, static_cast<size_t>(group_.world())}, data.size() / kElementBytes);
  return group_.VerifyAll();
}

// Every rank stages its data and sums all of it: one wait instead of three, and no second copy.
Status Collectives::ReduceAtOnce(std::span<std::byte> data, const Combiner& combiner, uint32_t call) {
  const size_t number = pieces_++;
  Announce(call, data.size());
  CopyBytes(OwnStaging(number, 0), data.data(), data.size());
  RM_TRY(group_.AwaitAll(group_.Publish()));
  RM_TRY(CompareCalls());
  const std::byte* sources[kMaxRanks];
  for (int q = 0; q < group_.world(); ++q)
    sources[q] = q == group_.rank() ? data.data() : Staging(q, number, 0);
  combiner.Combine(data.data(), {sources, static_cast<size_t>(group_.world())}, data.size() / kElementBytes);
  return group_.VerifyAll();
}

Status Collectives::Reduce(std::span<std::byte> data, const Combiner& combiner, int root) {
  if (group_.world() == 1 || data.empty()) return Skip();
  const uint32_t call =
      MakeCall(root < 0 ? OperationKind::kAllReduce : OperationKind::kReduce, &combiner, root);
  if (data.size() <= kSmallBytes) return SmallReduce(data, combiner, call);
  if (data.size() <= std::min(kAtOnceBytes, kAtOnceReads / group_.world()))
    return ReduceAtOnce(data, combiner, call);
  RM_ASSIGN(const bool direct, Begin(data, call, -1));
  return direct ? ReduceDirect(data, combiner, root) : ReduceStaged(data, combiner, root);
}

// In step i every rank sums its share of piece i, and then copies the other shares of piece i - 1: their
// owners had the time of one sum to finish them.
Status Collectives::ReduceDirect(std::span<std::byte> data, const Combiner& combiner, int root) {
  const int world = group_.world();
  const int rank = group_.rank();
  const size_t piece_bytes = kShareBytes * world;
  const size_t pieces = (data.size() + piece_bytes - 1) / piece_bytes;
  std::vector<const std::byte*> sources(world);
  uint64_t phase = 0;
  for (size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      const size_t begin = i * piece_bytes;
      const Range own = Share(std::min(piece_bytes, data.size() - begin), rank, world);
      for (int q = 0; q < world; ++q) sources[q] = published_[q] + begin + own.begin;
      combiner.Combine(data.data() + begin + own.begin, sources, own.length / kElementBytes);
      phase = group_.Publish();
    }
    if (i == 0 || (root >= 0 && root != rank)) continue;
    const uint64_t summed = i < pieces ? phase - 1 : phase;
    const size_t begin = (i - 1) * piece_bytes;
    for (int d = 1; d < world; ++d) {
      const int q = (rank + d) % world;
      const Range share = Share(std::min(piece_bytes, data.size() - begin), q, world);
      RM_TRY(group_.Await(q, summed));
      CopyBytes(data.data() + begin + share.begin, published_[q] + begin + share.begin, share.length);
    }
  }
  return End();
}

// In step i every rank stages piece i + 1, sums its share of piece i, publishes, and takes the other shares
// of piece i - 1. So each step waits once, for what its peers have published a step earlier.
Status Collectives::ReduceStaged(std::span<std::byte> data, const Combiner& combiner, int root) {
  const int world = group_.world();
  const int rank = group_.rank();
  const size_t first = pieces_;
  const size_t pieces = (data.size() + kPieceBytes - 1) / kPieceBytes;
  pieces_ += pieces;
  const auto piece = [&](size_t i) {
    return data.subspan(i * kPieceBytes, std::min(kPieceBytes, data.size() - i * kPieceBytes));
  };
  const auto stage = [&](size_t i) {
    const std::span<std::byte> from = piece(i);
    const Range own = Share(from.size(), rank, world);
    CopyBytes(OwnStaging(first + i, 0), from.data(), own.begin);
    const size_t behind = own.begin + own.length;
    CopyBytes(OwnStaging(first + i, behind), from.data() + behind, from.size() - behind);
  };
  std::vector<const std::byte*> sources(world);
  const auto sum = [&](size_t i) {
    const std::span<std::byte> to = piece(i);
    const Range own = Share(to.size(), rank, world);
    for (size_t at = 0; at < own.length; at += kBlockBytes) {
      const size_t begin = own.begin + at;
      const size_t length = std::min(kBlockBytes, own.length - at);
      for (int q = 0; q < world; ++q)
        sources[q] = q == rank ? to.data() + begin : Staging(q, first + i, begin);
      combiner.Combine(to.data() + begin, sources, length / kElementBytes);
      CopyBytes(OwnStaging(first + i, begin), to.data() + begin, length);
    }
  };
  const auto take = [&](size_t i) {
    const std::span<std::byte> to = piece(i);
    for (int d = 1; d < world; ++d) {
      const int q = (rank + d) % world;
      const Range share = Share(to.size(), q, world);
      CopyBytes(to.data() + share.begin, Staging(q, first + i, share.begin), share.length);
    }
  };
  stage(0);
  uint64_t phase = group_.Publish();
  for (size_t i = 0; i <= pieces; ++i) {
    RM_TRY(group_.AwaitAll(phase));
    if (i + 1 < pieces) stage(i + 1);
    if (i < pieces) {
      sum(i);
      phase = group_.Publish();
    }
    if (i > 0 && (root < 0 || root == rank)) take(i - 1);
  }
  return group_.VerifyAll();
}

Status Collectives::ReduceScatter(std::span<std::byte> data, const Combiner& combiner) {
  const int world = group_.world();
  const int rank = group_.rank();
  if (world == 1 || data.empty()) return Skip();
  const size_t share = data.size() / world;
  RM_ASSIGN(const bool direct, Begin(data, MakeCall(OperationKind::kReduceScatter, &combiner), -1));
  std::vector<const std::byte*> sources(world);
  std::byte* own = data.data() + rank * share;
  if (direct) {
    for (size_t begin = 0; begin < share; begin += kCopyBytes) {
      for (int q = 0; q < world; ++q) sources[q] = published_[q] + rank * share + begin;
      combiner.Combine(own + begin, sources, std::min(kCopyBytes, share - begin) / kElementBytes);
      RM_TRY(group_.VerifyAll());
    }
    return End();
  }
  // Each piece carries a part of every share.
  const size_t part = kPieceBytes / world / kLine * kLine;
  for (size_t begin = 0; begin < share; begin += part) {
    const size_t length = std::min(part, share - begin);
    const size_t number = pieces_++;
    for (int q = 0; q < world; ++q)
      CopyBytes(OwnStaging(number, q * part), data.data() + q * share + begin, length);
    RM_TRY(group_.AwaitAll(group_.Publish()));
    for (int q = 0; q < world; ++q) sources[q] = Staging(q, number, rank * part);
    combiner.Combine(own + begin, sources, length / kElementBytes);
  }
  return group_.VerifyAll();
}

Status Collectives::AllGather(std::span<std::byte> data) {
  const int world = group_.world();
  const int rank = group_.rank();
  if (world == 1 || data.empty()) return Skip();
  const size_t share = data.size() / world;
  RM_ASSIGN(const bool direct, Begin(data, MakeCall(OperationKind::kAllGather), -1));
  if (direct) {
    for (int d = 1; d < world; ++d) {
      const int q = (rank + d) % world;
      RM_TRY(Copy(q, data.data() + q * share, published_[q] + q * share, share));
    }
    return End();
  }
  for (size_t begin = 0; begin < share; begin += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, share - begin);
    const size_t number = pieces_++;
    CopyBytes(OwnStaging(number, 0), data.data() + rank * share + begin, length);
    RM_TRY(group_.AwaitAll(group_.Publish()));
    for (int q = 0; q < world; ++q)
      if (q != rank) CopyBytes(data.data() + q * share + begin, Staging(q, number, 0), length);
  }
  return group_.VerifyAll();
}

Status Collectives::Broadcast(std::span<std::byte> data, int root) {
  if (group_.world() == 1 || data.empty()) return Skip();
  RM_ASSIGN(const bool direct, Begin(data, MakeCall(OperationKind::kBroadcast, nullptr, root), root));
  const bool source = root == group_.rank();
  if (direct) {
    if (!source) RM_TRY(Copy(root, data.data(), published_[root], data.size()));
    return End();
  }
  for (size_t begin = 0; begin < data.size(); begin += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, data.size() - begin);
    const size_t number = pieces_++;
    if (source) CopyBytes(OwnStaging(number, 0), data.data() + begin, length);
    RM_TRY(group_.AwaitAll(group_.Publish()));
    if (!source) CopyBytes(data.data() + begin, Staging(root, number, 0), length);
  }
  return group_.VerifyAll();
}

Status Collectives::AllToAll(std::span<const std::byte> in, std::span<std::byte> out) {
  const int world = group_.world();
  const int rank = group_.rank();
  const size_t share = in.size() / world;
  if (in.empty()) return Skip();
  CopyBytes(out.data() + rank * share, in.data() + rank * share, share);
  if (world == 1) return Skip();
  RM_ASSIGN(const bool direct, Begin(in, MakeCall(OperationKind::kAllToAll), -1));
  if (direct) {
    for (int d = 1; d < world; ++d) {
      const int q = (rank + d) % world;
      RM_TRY(Copy(q, out.data() + q * share, published_[q] + rank * share, share));
    }
    return End();
  }
  const size_t part = kPieceBytes / world / kLine * kLine;
  for (size_t begin = 0; begin < share; begin += part) {
    const size_t length = std::min(part, share - begin);
    const size_t number = pieces_++;
    for (int q = 0; q < world; ++q)
      CopyBytes(OwnStaging(number, q * part), in.data() + q * share + begin, length);
    RM_TRY(group_.AwaitAll(group_.Publish()));
    for (int q = 0; q < world; ++q)
      if (q != rank) CopyBytes(out.data() + q * share + begin, Staging(q, number, rank * part), length);
  }
  return group_.VerifyAll();
}

}  // namespace ringmaster::fabric::shm
