// SPDX-License-Identifier: Apache-2.0

// CheckpointSaver writes the checkpoints of a run: periodic ones in the background of training,
// and the last one before the run ends. It reports what is published and what failed.
//
// Not thread-safe; main thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/trainer_page.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/reporter.h"
#include "worker/trainer/root_work.h"

namespace ringmaster::trainer {

// Says that the run cannot continue, since a checkpoint of the step `floor` is known to exist, and the newest
// that was found is `found`, or none. Going back further would be silent: the steps in between would be lost.
std::string MissingCheckpoint(const std::string& folder, int64_t floor, const checkpoint::Loaded* found);

class CheckpointSaver {
 public:
  struct Options {
    std::string folder;  // empty: no checkpoints
    int keep = 1;        // the newest ones
    std::string member;
    checkpoint::Identity identity;
    agent::TrainerPage* page = nullptr;  // may be null
    Reporter* reporter = nullptr;
    // Of the state as it is now. The saver adds the identity.
    std::function<Result<checkpoint::Snapshot>()> take_snapshot;
  };
  explicit CheckpointSaver(Options options) : options_(std::move(options)) {}

  // Starts a checkpoint in the background; skips it while the previous one is still being written. A failure
  // is reported, and training continues.
  void SavePeriodic(int64_t step);

  // Collective: writes the checkpoint of `step` on rank 0, and returns when it is written. A generation that
  // ends before leaves the write in progress, and the next one waits for it. After a failure it tries again
  // for two minutes. Errors: of the last attempt, with the remedy in *fatal; kCancelled after `cancel`; those
  // of the communicator.
  Status SaveLast(fabric::Communicator* comm, const std::atomic<bool>* cancel, int64_t step,
                  std::optional<std::string>* fatal);

  // Reports a checkpoint that was published since the last call, or why it was not.
  void ReportPublished();

  // The run continues from the checkpoint of this step. `parent`: of the run; null: none.
  void ContinuedFrom(int64_t step, Json parent);

  // A generation begins, in which this member is the root or not. With `new_attempt` no member had a state,
  // so the folder may belong to another attempt now. The root looks which attempt owns the folder.
  void BeginGeneration(bool root, bool new_attempt);

  // Why this member must not write to the folder: kConflict, it has checkpoints of another run; kGone, a
  // newer attempt of this run has taken it over. Unset: it may.
  const std::optional<Error>& refused() const { return refused_; }

  // Whether this member has written a checkpoint.
  bool writes() const { return writer_ != nullptr; }

 private:
  struct Opening {
    Result<std::unique_ptr<checkpoint::Writer>> opened{std::unique_ptr<checkpoint::Writer>()};
    std::unique_ptr<BackgroundWork> work;
  };
  // What the root learns from the folder before it writes.
  struct Look {
    Result<std::string> owner{std::string()};
    Json parent;
    bool forgotten = false;
    std::unique_ptr<BackgroundWork> work;  // last: it uses the others
  };
  struct Last {
    int64_t step = -1;
    bool started = false;
    std::optional<Time> failing_since;
    Duration pause{};  // before the next attempt
    Time next_attempt{};
  };

  Status StartPeriodic(int64_t step);
  void StartLook();
  // Returns whether the look at the folder is done within `limit`; call again otherwise.
  bool Looked(Duration limit);
  Result<checkpoint::Snapshot> TakeSnapshot();
  void NoteRefusal(const Error& error);
  // Opens the folder in the background, since a slow disk may take long. Returns whether writer_ is ready
  // within `limit`; call again otherwise.
  Result<bool> OpenWriter(Duration limit);
  // One call of a loop on rank 0: starts the write of the last checkpoint, or waits for it for a moment.
  // Returns whether it is written.
  Result<bool> TryToSaveLast(int64_t step);
  Result<bool> WriteLast();

  const Options options_;
  std::unique_ptr<checkpoint::Writer> writer_;  // created when this member first writes a checkpoint
  std::unique_ptr<Opening> opening_;            // of writer_
  Last last_;
  int64_t published_step_ = -1;
  bool root_ = false;
  std::unique_ptr<Look> look_;          // null: none is in progress
  std::optional<std::string> attempt_;  // that owns the folder; unset: unknown
  Json parent_;                         // of the run; null: none
  std::optional<Error> refused_;
};

}  // namespace ringmaster::trainer
