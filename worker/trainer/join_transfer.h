// SPDX-License-Identifier: Apache-2.0

// JoinTransfer brings joining members to the state of the others while these train.
//
// A joining member takes part in the generation from its first step, but owns no micro-batch. Like every
// member it gets the reduced gradient of each step and runs the update. The optimizers work element by
// element, so an element that the member holds for step s is right for step s + 1 as well; all others hold
// garbage until they arrive. In each step the members that have the state (*sources*) send the next pieces of
// it, while they compute gradients: until the update, which writes the other image, the current image does
// not change. After the last piece the joining member holds the whole state of that step, compares its hashes
// with a source's, and from the next step on owns micro-batches.
//
// So a join needs no log of gradients, no copy of the state and no second connection. A step sends as many
// pieces as fit into a quarter of the previous step, and into 0.75 s.
//
// Every member makes the same calls. Not thread-safe; main thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/messages.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/comm_queue.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

class JoinTransfer {
 public:
  // Returns the size of a piece; 0 when the state is so small that members had better wait for it. The
  // environment variable RINGMASTER_JOIN_PIECE_BYTES, with which tests join with small models, takes
  // precedence.
  static size_t PieceBytes(TrainState& state);

  // Collective: sends step, cursor, exponents and records to the joining members, whose states then follow
  // (TrainState::Follow). REQUIRES: `sources` as in ShareState; some rank is not a source; `state` and `comm`
  // outlive the transfer. `records` as in ShareState.
  static Result<std::unique_ptr<JoinTransfer>> Begin(fabric::Communicator* comm,
                                                     std::span<const int32_t> sources, size_t piece_bytes,
                                                     TrainState* state,
                                                     std::vector<rendezvous::StepRecord>* records);

  bool done() const { return sent_ == pieces_; }
  int64_t bytes_sent() const { return static_cast<int64_t>(bytes_sent_); }
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }

  // The members that own micro-batches: all when done, otherwise the sources.
  int owners() const { return done() ? comm_->world() : static_cast<int>(sources_.size()); }
  // This rank's index among the owners; -1: it owns none.
  int owner() const { return done() ? comm_->rank() : source_; }

  // Queues the transfers of this step, before any bucket; `all`: everything that is left. REQUIRES: !done();
  // comms.host is the communicator of Begin.
  Status Enqueue(const Communicators& comms, CommQueue* queue, bool all);
  // Takes note that the queue is drained and the device idle. A joining member that now holds everything
  // compares hashes. REQUIRES: the current image is that of Enqueue. Errors: kCorrupt when they differ.
  Status Advance();

  // The number of pieces of the next step: the first source proposes it once this step's are transferred, and
  // the exchange of the step brings it to all members. 0 on all other ranks.
  int32_t Propose();
  void Agree(int32_t pieces) { next_ = static_cast<size_t>(std::max(1, pieces)); }
  // The time from the last Enqueue to the next one will not be that of a step.
  void Pause() { queued_at_ = {}; }

 private:
  JoinTransfer(fabric::Communicator* comm, std::span<const int32_t> sources, size_t piece_bytes,
               TrainState* state);

  fabric::Communicator* const comm_;
  const std::vector<int32_t> sources_;
  std::vector<int32_t> joining_;
  const int source_;  // this rank's index in sources_; -1: it joins
  const size_t piece_bytes_;
  TrainState* const state_;
  size_t bytes_ = 0;
  size_t pieces_ = 0;
  size_t bytes_sent_ = 0;  // about
  size_t sent_ = 0;        // pieces
  size_t queued_ = 0;      // in this step
  size_t next_ = 8;        // pieces of the next step
  int32_t proposal_ = 1;
  CommQueue* queue_ = nullptr;  // of the last Enqueue
  TrainState::Hashes hashes_;   // of the current image: sent or received with the last piece
  Time queued_at_{};
  Duration step_time_{};  // between the last two Enqueue; zero: not known yet
};

}  // namespace ringmaster::trainer
