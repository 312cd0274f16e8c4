// SPDX-License-Identifier: Apache-2.0

// DIR/metrics.jsonl: one line per committed step, each step exactly once and in order, whatever happened.
//
// Records may come twice (after a change of generation the new reporter repeats its newest ones) and, after a
// loss of all workers, again from a checkpoint on: the first of each step is kept. A record that skips steps
// waits until the missing ones arrive. On resume, lines past the checkpoint and a line torn by kill -9 are
// dropped, because those steps will be committed again with the same bits.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

// {"step":1,"loss":...,"lr":...,"gradNorm":...,"samples":...,"generation":...,"workers":...,"seconds":...}
// without a newline. Doubles are printed so that reading them back gives the same bits.
std::string MetricsLine(const rendezvous::StepRecord& record);

class MetricsLog {
 public:
  // Continues the file at `path` behind step `resume_step` (0: from the start, the file is emptied).
  static Result<std::unique_ptr<MetricsLog>> Open(const std::string& path, int64_t resume_step);

  // Takes one record; gives back the records that were written because of it, in order (often just this one).
  Result<std::vector<rendezvous::StepRecord>> Add(const rendezvous::StepRecord& record);

  // Writes what still waits for missing steps (they are lost then) and syncs. Gives back what was written.
  Result<std::vector<rendezvous::StepRecord>> Finish();

  int64_t last_step() const { return last_step_; }
  // Of last_step(); not when the file says nothing about it.
  std::optional<double> last_loss() const { return last_loss_; }

 private:
  MetricsLog(Fd file, std::string path, int64_t last_step, std::optional<double> last_loss);
  Status Write(const rendezvous::StepRecord& record);

  static constexpr size_t kMaxWaiting =
      64;  // records behind a gap; with more of them nobody will fill it any more

  Fd file_;
  const std::string path_;
  int64_t last_step_;
  std::optional<double> last_loss_;
  std::map<int64_t, rendezvous::StepRecord> waiting_;
};

}  // namespace ringmaster::cli
