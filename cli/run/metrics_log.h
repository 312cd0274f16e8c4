// SPDX-License-Identifier: Apache-2.0

// DIR/metrics.jsonl: one line per committed step, exactly once and in order, despite failures.
//
// A step may be reported twice: after a change of generation the new reporter repeats its newest records, and
// after the loss of all workers training repeats the steps since the checkpoint. The first record of each
// step is kept. A record that skips steps waits until the missing ones arrive. On resume, lines after the
// checkpoint and a line torn by kill -9 are dropped, because those steps are committed again with the same
// bits. cli/history/step_history.h describes the lines.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "cli/history/step_history.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

class MetricsLog {
 public:
  // Opens the file and continues it after step `resume_step`. 0 truncates the file. Without a value, the
  // first record decides: a program of users knows alone where it continues.
  // With `may_skip`, records may skip steps for good: programs of users need not report each one.
  static Result<std::unique_ptr<MetricsLog>> Open(const std::string& path, std::optional<int64_t> resume_step,
                                                  bool may_skip = false);

  // Returns the step of the last whole line of a file; 0: none.
  static Result<int64_t> LastStepOf(const std::string& path);

  // Adds a record. Returns the records that it allowed to be written, in order; usually just this one. After
  // an error, the next call tries to write the same records again.
  Result<std::vector<rendezvous::StepRecord>> Add(const rendezvous::StepRecord& record);

  // Writes the records that still wait for missing steps, gives up on those steps, and syncs the file.
  // Returns the records written.
  Result<std::vector<rendezvous::StepRecord>> Finish();

  int64_t last_step() const { return last_step_; }
  // The loss of last_step(); nullopt when the file does not have it.
  std::optional<double> last_loss() const { return last_loss_; }

 private:
  MetricsLog(std::string path, bool may_skip) : path_(std::move(path)), may_skip_(may_skip) {}
  // Keeps the lines up to this step, and removes the rest.
  Status Keep(int64_t last_step);
  // Lets the first record decide where the run continues, if none has.
  Status Decide();
  Status Reopen();
  Status Write(const rendezvous::StepRecord& record);

  // Records that wait for a missing step. With more of them, the missing step is given up.
  static constexpr size_t kMaxWaiting = 64;

  Fd file_;
  const std::string path_;
  const bool may_skip_;
  int64_t last_step_ = 0;
  std::optional<double> last_loss_;
  size_t size_ = 0;         // of the whole lines
  bool undecided_ = false;  // no record has shown yet where the run continues
  StepLineWriter writer_;
  std::map<int64_t, rendezvous::StepRecord> waiting_;
};

}  // namespace ringmaster::cli
