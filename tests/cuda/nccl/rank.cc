// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda/nccl/rank.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/compute/cuda/kernels/bf16.h"

namespace ringmaster::nccl_emulation {
namespace {

using fabric::nccl::kBfloat16;
using fabric::nccl::kInt32;
using fabric::nccl::kMax;

template <class T>
void Combine(std::byte* into, std::span<const std::byte> from, int operation) {
  for (size_t at = 0; at < from.size(); at += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, into + at, sizeof(T));
    std::memcpy(&b, from.data() + at, sizeof(T));
    const T c = operation == kMax ? std::max(a, b) : static_cast<T>(a + b);
    std::memcpy(into + at, &c, sizeof(T));
  }
}

// Sums in float, rounded to nearest even after each rank.
void AddBf16(std::byte* into, std::span<const std::byte> from) {
  for (size_t at = 0; at < from.size(); at += 2) {
    cuda::Bf16 a{};
    cuda::Bf16 b{};
    std::memcpy(&a, into + at, 2);
    std::memcpy(&b, from.data() + at, 2);
    const cuda::Bf16 sum = cuda::RoundToBf16(cuda::ToFloat(a) + cuda::ToFloat(b));
    std::memcpy(into + at, &sum, 2);
  }
}

}  // namespace

Rank::Rank(std::shared_ptr<Area> area, int rank, int world)
    : area_(std::move(area)), rank_(rank), world_(world) {
  ++area_->head().joined;
  thread_ = std::thread([this] { Run(); });
}

Rank::~Rank() { Stop(); }

void Rank::Give(const Operation& operation) {
  operation.stream->Give();
  {
    const std::lock_guard lock(mutex_);
    operations_.push_back(operation);
  }
  changed_.notify_all();
}

bool Rank::Idle() {
  const std::lock_guard lock(mutex_);
  return operations_.empty();
}

void Rank::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  area_->NotifyChange();
  if (thread_.joinable()) thread_.join();
  for (const Operation& operation : operations_) {
    operation.stream->Finish();
  }
  operations_.clear();
}

void Rank::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !operations_.empty(); });
    if (stop_) return;
    const Operation operation = operations_.front();
    lock.unlock();
    const bool done = Work(operation);
    lock.lock();
    if (!done) return;
    operations_.pop_front();
    operation.stream->Finish();
  }
}

bool Rank::Work(const Operation& operation) {
  const size_t bytes = operation.bytes;
  const auto world = static_cast<size_t>(world_);
  const auto rank = static_cast<size_t>(rank_);
  switch (operation.kind) {
    case Kind::kAllReduce:
      return Reduce({operation.in, bytes}, operation.out, operation.type, operation.argument);
    case Kind::kReduceScatter:
      for (size_t share = 0; share < world; ++share) {
        std::byte* const out = share == rank ? operation.out : nullptr;
        if (!Reduce({operation.in + share * bytes, bytes}, out, operation.type, operation.argument))
          return false;
      }
      return true;
    case Kind::kAllGather:
      for (size_t at = 0; at < bytes; at += Area::kPiece) {
        const size_t size = std::min(Area::kPiece, bytes - at);
        if (!Exchange({operation.in + at, size}, size, [&](int from, std::span<const std::byte> piece) {
              std::ranges::copy(piece, operation.out + static_cast<size_t>(from) * bytes + at);
            }))
          return false;
      }
      return true;
    case Kind::kBroadcast:
      for (size_t at = 0; at < bytes; at += Area::kPiece) {
        const size_t size = std::min(Area::kPiece, bytes - at);
        const size_t own = rank_ == operation.argument ? size : 0;
        if (!Exchange({operation.in + at, own}, size, [&](int from, std::span<const std::byte> piece) {
              if (from == operation.argument) std::ranges::copy(piece, operation.out + at);
            }))
          return false;
      }
      return true;
  }
  return true;
}

// Sums in the order of ranks. Without `out` another rank needs the sum.
bool Rank::Reduce(std::span<const std::byte> in, std::byte* out, int type, int operation) {
  for (size_t at = 0; at < in.size(); at += Area::kPiece) {
    const size_t size = std::min(Area::kPiece, in.size() - at);
    const bool exchanged =
        Exchange(in.subspan(at, size), size, [&](int from, std::span<const std::byte> piece) {
          if (out == nullptr) return;
          if (from == 0) {
            std::ranges::copy(piece, out + at);
          } else if (type == kInt32) {
            Combine<int32_t>(out + at, piece, operation);
          } else if (type == kBfloat16) {
            AddBf16(out + at, piece);
          } else {
            Combine<float>(out + at, piece, operation);
          }
        });
    if (!exchanged) return false;
  }
  return true;
}

bool Rank::Exchange(std::span<const std::byte> own, size_t size, const Use& use) {
  if (!AwaitAll(&Area::Rank::taken, segments_)) return false;
  ++segments_;
  std::ranges::copy(own, area_->Slot(rank_).begin());
  Area::Rank& self = area_->head().ranks[static_cast<size_t>(rank_)];
  self.put = segments_;
  area_->NotifyChange();
  if (!AwaitAll(&Area::Rank::put, segments_)) return false;
  for (int from = 0; from < world_; ++from) use(from, area_->Slot(from).first(size));
  self.taken = segments_;
  area_->NotifyChange();
  return true;
}

bool Rank::AwaitAll(std::atomic<uint64_t> Area::Rank::*counter, uint64_t count) {
  for (int rank = 0; rank < world_; ++rank) {
    const std::atomic<uint64_t>& reached = area_->head().ranks[static_cast<size_t>(rank)].*counter;
    while (true) {
      const uint32_t seen = area_->head().changes;
      if (reached >= count) break;
      if (stop_) return false;
      area_->AwaitChange(seen);
    }
  }
  return true;
}

}  // namespace ringmaster::nccl_emulation
