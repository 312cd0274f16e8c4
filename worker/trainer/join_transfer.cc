// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/join_transfer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "worker/trainer/transfer.h"

namespace ringmaster::trainer {
namespace {

// How long the pieces of one step may take. Where they cannot overlap with computation, a join delays each
// step by that much.
constexpr Duration kLeastBudget = milliseconds(50);
constexpr Duration kLargestBudget = milliseconds(750);
constexpr Duration kFirstBudget = milliseconds(100);  // while the time of a step is not known
// The number of pieces grows by this factor at most: few pieces do not show the speed of the network.
constexpr size_t kGrowth = 4;

constexpr size_t kJoinPieceBytes = size_t{1} << 20;  // of each array
constexpr size_t kSmallState = size_t{64} << 20;

size_t SizeOf(const TrainState::Piece& piece) {
  size_t bytes = 0;
  for (const auto& part : piece) bytes += part.host.size();
  return bytes;
}

int IndexOf(std::span<const int32_t> ranks, int rank) {
  const auto at = std::ranges::find(ranks, rank);
  return at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
}

}  // namespace

size_t JoinTransfer::PieceBytes(TrainState& state) {
  if (const char* const set = std::getenv("RINGMASTER_JOIN_PIECE_BYTES"); set != nullptr) {
    const auto bytes = std::strtoull(set, nullptr, 10);
    return bytes / sizeof(float) * sizeof(float);
  }
  size_t bytes = 0;
  for (const TrainState::Piece& piece : state.Pieces(kJoinPieceBytes)) bytes += SizeOf(piece);
  return bytes > kSmallState ? kJoinPieceBytes : 0;
}

JoinTransfer::JoinTransfer(fabric::Communicator* comm, std::span<const int32_t> sources, size_t piece_bytes,
                           TrainState* state)
    : comm_(comm),
      sources_(sources.begin(), sources.end()),
      source_(IndexOf(sources, comm->rank())),
      piece_bytes_(piece_bytes),
      state_(state) {
  for (int rank = 0; rank < comm->world(); ++rank) {
    if (IndexOf(sources, rank) < 0) joining_.push_back(rank);
  }
  for (const TrainState::Piece& piece : state->Pieces(piece_bytes)) {
    bytes_ += SizeOf(piece);
    ++pieces_;
  }
}

Result<std::unique_ptr<JoinTransfer>> JoinTransfer::Begin(fabric::Communicator* comm,
                                                          std::span<const int32_t> sources,
                                                          size_t piece_bytes, TrainState* state,
                                                          std::vector<rendezvous::StepRecord>* records) {
  CHECK(!sources.empty());
  std::unique_ptr<JoinTransfer> transfer(new JoinTransfer(comm, sources, piece_bytes, state));
  CHECK(!transfer->joining_.empty());
  const std::span<std::byte> exponents = std::as_writable_bytes(state->Exponents());
  if (transfer->source_ == 0) {
    RM_TRY(SendHead(comm, transfer->joining_, state, *records));
    for (const int32_t rank : transfer->joining_) {
      if (!exponents.empty()) RM_TRY(comm->Send(exponents, rank));
    }
  } else if (transfer->source_ < 0) {
    state->Discard();
    RM_ASSIGN(const StateHead head, ReceiveHead(comm, sources[0], records));
    if (!exponents.empty()) RM_TRY(comm->Receive(exponents, sources[0]));
    state->Follow(head.step, {head.epoch, head.position}, head.loss);
  }
  return transfer;
}

Status JoinTransfer::Enqueue(const Communicators& comms, CommQueue* queue, bool all) {
  CHECK(!done());
  const Time now = Now();
  if (queued_at_ != Time{}) step_time_ = now - queued_at_;
  queued_at_ = now;
  queue_ = queue;
  (void)queue->TakeTransferTime();
  queued_ = all ? pieces_ - sent_ : std::min(next_, pieces_ - sent_);
  const auto pieces = state_->Pieces(piece_bytes_);
  const auto transfer = [&](const HostDeviceBuffer<std::byte>& data, size_t source) {
    if (source_ == static_cast<int>(source)) return queue->AddSend(comms, data, joining_);
    return source_ < 0 ? queue->AddReceive(comms, data, sources_[source]) : Ok();
  };
  for (size_t p = sent_; p < sent_ + queued_; ++p) {
    for (const auto& part : pieces[p]) RM_TRY(transfer(part, p % sources_.size()));
  }
  if (sent_ + queued_ < pieces_) return Ok();
  if (source_ == 0) {
    RM_ASSIGN(hashes_, state_->StateHashes());
  }
  return transfer({std::as_writable_bytes(std::span(&hashes_, 1)), {}}, 0);
}

int32_t JoinTransfer::Propose() {
  if (source_ != 0 || queued_ == 0) return 0;
  // A repeated attempt of the step transfers nothing, and proposes the same.
  if (const Duration took = queue_->TakeTransferTime(); took > Duration::zero()) {
    const Duration budget = step_time_ == Duration::zero()
                                ? kFirstBudget
                                : std::clamp(step_time_ / 4, kLeastBudget, kLargestBudget);
    const double fits = static_cast<double>(queued_) * (ToSeconds(budget) / ToSeconds(took));
    proposal_ = static_cast<int32_t>(std::clamp(fits, 1.0, static_cast<double>(kGrowth * queued_)));
  }
  return proposal_;
}

Status JoinTransfer::Advance() {
  sent_ += std::exchange(queued_, 0);
  bytes_sent_ = done() ? bytes_ : bytes_ / pieces_ * sent_;
  if (!done() || source_ >= 0) return Ok();
  return state_->Complete(hashes_);
}

}  // namespace ringmaster::trainer
