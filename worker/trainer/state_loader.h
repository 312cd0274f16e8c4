// SPDX-License-Identifier: Apache-2.0

// StateLoader gets the state from which a job starts: the newest checkpoint, or initial values. It works on a
// separate thread, and takes the folder of checkpoints for the attempt that begins so. It needs a thread,
// since a slow disk takes minutes, while the coordinator expects an answer to each order within seconds. The
// work outlives the generation that started it: a later one adopts its result.
//
// Not thread-safe: main thread only.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/work_counter.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/compute/engine/model.h"
#include "worker/trainer/root_work.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

class StateLoader {
 public:
  struct Options {
    std::string folder;             // of checkpoints; empty: there are none
    checkpoint::Identity identity;  // of the run
    std::string member;
    const engine::Model* model = nullptr;
    uint64_t seed = 0;
    TrainState* state = nullptr;
  };
  // Starts the work. Without a checkpoint, it fills the host's copy of the state. REQUIRES: all outlive the
  // loader; until it is destroyed, no other code changes that copy.
  explicit StateLoader(Options options);
  // Ends the work at the next opportunity: within the read of one chunk of a checkpoint.
  ~StateLoader();

  // Waits up to `limit` and returns whether the work is done. Throws std::bad_alloc.
  bool Wait(Duration limit) { return work_.Wait(limit); }

  // How much of a checkpoint is loaded; -1: none is being loaded.
  int Percent() const { return counter_.Percent(); }

  // What users should know about the folder; empty: nothing. REQUIRES: Wait returned true.
  const std::string& note() const { return note_; }

  // The checkpoint, or why there is none to load; nullopt: the state was initialized. REQUIRES: Wait returned
  // true.
  const std::optional<Result<checkpoint::Loaded>>& found() const { return found_; }

 private:
  void Run();

  const Options options_;
  std::atomic<bool> cancel_{false};
  WorkCounter counter_;
  std::optional<Result<checkpoint::Loaded>> found_;
  std::string note_;
  BackgroundWork work_;  // last: it uses all other members
};

}  // namespace ringmaster::trainer
