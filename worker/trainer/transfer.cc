// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/transfer.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/hash.h"

namespace ringmaster::trainer {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

// Members run the same build, so records are sent in their memory layout.
static_assert(std::is_trivially_copyable_v<rendezvous::StepRecord>);
constexpr uint64_t kMostRecords = 1 << 16;

// The state as pieces, the same list on every member.
Result<std::vector<std::span<std::byte>>> Pieces(TrainState* state) {
  std::vector<std::span<std::byte>> pieces;
  RM_ASSIGN(const std::vector<TrainState::Part> parts, state->Parts());
  for (const TrainState::Part& part : parts) {
    for (size_t begin = 0; begin < part.bytes.size(); begin += kPieceBytes) {
      pieces.push_back(part.bytes.subspan(begin, std::min(kPieceBytes, part.bytes.size() - begin)));
    }
  }
  return pieces;
}

Status Serve(fabric::Communicator* comm, std::span<const int32_t> sources, size_t mine,
             std::span<const int32_t> receivers, TrainState* state,
             std::span<const rendezvous::StepRecord> records) {
  if (mine == 0) RM_TRY(SendHead(comm, receivers, state, records));
  RM_ASSIGN(const auto pieces, Pieces(state));
  for (size_t p = mine; p < pieces.size(); p += sources.size()) {
    for (const int receiver : receivers) RM_TRY(comm->Send(pieces[p], receiver));
  }
  return Ok();
}

Status Fetch(fabric::Communicator* comm, std::span<const int32_t> sources, TrainState* state,
             std::vector<rendezvous::StepRecord>* records) {
  state->Discard();
  RM_ASSIGN(const StateHead head, ReceiveHead(comm, sources[0], records));
  RM_ASSIGN(const auto pieces, Pieces(state));
  for (size_t p = 0; p < pieces.size(); ++p) RM_TRY(comm->Receive(pieces[p], sources[p % sources.size()]));
  RM_TRY(state->Adopt(head.step, {head.epoch, head.position}, head.loss));
  RM_ASSIGN(const TrainState::Hashes hashes, state->StateHashes());
  if (hashes != TrainState::Hashes{head.params_hash, head.optimizer_hash}) {
    state->Discard();
    return Error{Code::kCorrupt,
                 fmt::format("the received state of step {} does not match its hashes", head.step)};
  }
  return Ok();
}

}  // namespace

Status SendHead(fabric::Communicator* comm, std::span<const int32_t> receivers, TrainState* state,
                std::span<const rendezvous::StepRecord> records) {
  const data::Cursor& cursor = state->current().cursor;
  RM_ASSIGN(const TrainState::Hashes hashes, state->StateHashes());
  const StateHead head = {state->step(), cursor.epoch,     cursor.position, state->current().loss,
                          hashes.params, hashes.optimizer, records.size()};
  for (const int32_t receiver : receivers) {
    RM_TRY(comm->Send(std::as_bytes(std::span(&head, 1)), receiver));
    if (!records.empty()) RM_TRY(comm->Send(std::as_bytes(records), receiver));
  }
  return Ok();
}

Result<StateHead> ReceiveHead(fabric::Communicator* comm, int32_t source,
                              std::vector<rendezvous::StepRecord>* records) {
  StateHead head;
  RM_TRY(comm->Receive(std::as_writable_bytes(std::span(&head, 1)), source));
  if (head.records > kMostRecords) return Error{Code::kCorrupt, "the header of a received state is invalid"};
  records->resize(head.records);
  if (!records->empty()) RM_TRY(comm->Receive(std::as_writable_bytes(std::span(*records)), source));
  return head;
}

Status ShareState(fabric::Communicator* comm, std::span<const int32_t> sources, TrainState* state,
                  std::vector<rendezvous::StepRecord>* records) {
  CHECK(!sources.empty());
  std::vector<int32_t> receivers;
  for (int rank = 0; rank < comm->world(); ++rank) {
    if (std::ranges::find(sources, rank) == sources.end()) receivers.push_back(rank);
  }
  if (receivers.empty()) return Ok();
  const auto mine = std::ranges::find(sources, comm->rank());
  if (mine == sources.end()) return Fetch(comm, sources, state, records);
  return Serve(comm, sources, static_cast<size_t>(mine - sources.begin()), receivers, state, *records);
}

}  // namespace ringmaster::trainer
