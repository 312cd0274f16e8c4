// SPDX-License-Identifier: Apache-2.0

// CheckpointSearch finds the newest checkpoint on a separate thread: a folder on slow storage may take longer
// to list than the coordinator waits for an answer to its Prepare.
//
// Not thread-safe: main thread only.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "rendezvous/messages.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/trainer/root_work.h"

namespace ringmaster::trainer {

class CheckpointSearch {
 public:
  // How long a member looks before it answers that it is still looking: well below the coordinator's limit.
  static constexpr Duration kPatience = seconds(2);

  // `folder` is empty when the job keeps no checkpoints. `identity`: of the run.
  CheckpointSearch(std::string folder, checkpoint::Identity identity);

  // Waits up to `patience` and writes into *status what was found, or that the search continues. A later call
  // then waits for the same search.
  void Answer(Duration patience, rendezvous::MemberStatus* status);
  // Call when this member begins a generation: checkpoints may appear, so the next call of Answer looks
  // again.
  void Forget();

 private:
  struct Search {
    checkpoint::Newest newest;
    bool forgotten = false;
    std::unique_ptr<BackgroundWork> work;  // last: it uses `newest`
  };

  const std::string folder_;
  const checkpoint::Identity identity_;
  std::unique_ptr<Search> search_;  // null: none is running
};

}  // namespace ringmaster::trainer
