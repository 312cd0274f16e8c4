// SPDX-License-Identifier: Apache-2.0

// Tells the world about committed steps, off the critical path: rank 0 sends them in batches. Every member
// keeps the newest records, so that a new rank 0 can repeat what its predecessor may have taken with it; a
// member that joins gets them with the state, and checkpoints carry them, for the case that everybody dies.
// Receivers keep the first record of each step.
//
// Thread rule: main thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "worker/trainer/channel.h"

namespace ringmaster::trainer {

class Reporter {
 public:
  Reporter(Channel* channel, int64_t total_steps) : channel_(channel), total_steps_(total_steps) {}

  // A generation starts at `step`: later records were rolled back. `speaks`: this member is rank 0 in it.
  // `transport` is told with its first words.
  void StartGeneration(int64_t step, bool speaks, std::string transport);

  void Committed(const rendezvous::StepRecord& record);
  void CheckpointPublished(int64_t step);
  void CheckpointFailed(const std::string& why);
  // For people, sent at once.
  void Note(const std::string& text);
  void Flush();
  // Before the end: every member repeats what it kept. Rank 0's words may be stuck in an agent that was
  // stopped, and another member's Done would end the job without them.
  void RepeatAll();

  // The newest records, for one that joins, and for a checkpoint's description; and back from there.
  std::vector<rendezvous::StepRecord> kept() const { return {kept_.begin(), kept_.end()}; }
  Json RecordsForCheckpoint() const;
  void Restore(const std::vector<rendezvous::StepRecord>& records);
  void Restore(const Json& records);

  const std::optional<rendezvous::StepRecord>& last() const { return last_; }

 private:
  Channel* const channel_;
  const int64_t total_steps_;
  bool speaks_ = false;
  bool repeat_ = true;  // the next time this member speaks it repeats what it kept
  std::deque<rendezvous::StepRecord> kept_;
  std::optional<rendezvous::StepRecord> last_;
  rendezvous::Progress pending_;
  std::string transport_;
  Time last_flush_{};
  bool first_of_generation_ = false;
};

}  // namespace ringmaster::trainer
