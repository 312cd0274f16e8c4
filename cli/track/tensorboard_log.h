// SPDX-License-Identifier: Apache-2.0

// DIR/tensorboard: an event file for TensorBoard with each committed step exactly once, whatever fails.
//
// A run that starts or continues writes a new file with what metrics.jsonl and events.jsonl have up to its
// checkpoint, and empties the older files. So the file agrees with metrics.jsonl also when the run before it
// wrote none or was killed in the middle of a record. The first event makes a TensorBoard that has read the
// older file forget it. Wall times of steps survive, unless the run before it wrote no event file.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "cli/history/run_event.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

class TensorboardLog {
 public:
  // `steps` and `events`: what the run folder has recorded up to `resume_step`. `now`: seconds since the
  // epoch.
  static Result<std::unique_ptr<TensorboardLog>> Open(const std::string& folder,
                                                      const std::vector<rendezvous::StepRecord>& steps,
                                                      const std::vector<RunEvent>& events,
                                                      int64_t resume_step, double now);

  // REQUIRES: steps increase.
  Status Add(const rendezvous::StepRecord& record, double now);
  // A later result of the same step is the same, and is not written again.
  Status AddValidation(const rendezvous::ValidationResult& result, double now);

 private:
  TensorboardLog(Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Status Write(std::string_view event);

  Fd file_;
  const std::string path_;
  std::set<int64_t> validated_;
};

}  // namespace ringmaster::cli
