// SPDX-License-Identifier: Apache-2.0

// Reporter reports committed steps to the coordinator, off the critical path: rank 0 sends records in
// batches. Every member keeps the newest records, so that a new rank 0 can repeat those that its predecessor
// may not have sent. A joining member gets them with the state, and checkpoints contain them in case all
// members die. Receivers keep the first record of each step.
//
// Not thread-safe; main thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/time.h"
#include "worker/trainer/agent_channel.h"

namespace ringmaster::trainer {

class Reporter {
 public:
  Reporter(AgentChannel* channel, int64_t total_steps) : channel_(channel), total_steps_(total_steps) {}

  // Starts a generation at `step` and drops records of later steps, which were rolled back. `sends`: this
  // member is rank 0. `transport` goes out with every Progress.
  void StartGeneration(int64_t step, bool sends, std::string transport);

  void Committed(const rendezvous::StepRecord& record);
  void CheckpointPublished(int64_t step);
  void CheckpointFailed(const std::string& why);
  // Sends the result at once. Every member keeps it, as it keeps records, for a new rank 0.
  void Validated(const rendezvous::ValidationResult& result);
  // Sends a note for users at once.
  void Note(const std::string& text);
  // The same, on a member that need not be rank 0, such as the one that loads the state.
  void NoteOfAnyMember(const std::string& text);
  // Logs and notes, on any member, how the run differs from the one that wrote the checkpoint it continues;
  // nothing if it does not.
  void ContinuedWithChanges(const std::string& path, const std::vector<std::string>& changes);
  // Logs, and reports at once, why a checkpoint that is newer than the loaded one cannot be used, for an
  // event; on any member.
  void CheckpointSkipped(const std::string& why);
  // The run ends earlier than it was going to.
  void SetTotalSteps(int64_t steps) { total_steps_ = steps; }
  void Flush();
  // Sends all kept records, on every member, before Done: rank 0's records may be stuck in a suspended agent,
  // and another member's Done would end the job without them.
  void RepeatAll();

  // The newest records, for a joining member and for a checkpoint; Restore takes them back.
  std::vector<rendezvous::StepRecord> kept() const { return {kept_.begin(), kept_.end()}; }
  Json RecordsForCheckpoint() const;
  void Restore(const std::vector<rendezvous::StepRecord>& records);
  void Restore(const Json& records);

  const std::optional<rendezvous::StepRecord>& last() const { return last_; }

  // The newest validation, for a joining member, which takes it by RestoreValidation.
  const std::optional<rendezvous::ValidationResult>& validation() const { return validation_; }
  void RestoreValidation(const std::optional<rendezvous::ValidationResult>& result) { validation_ = result; }

 private:
  // Does nothing without an agent.
  void Send(const rendezvous::Progress& progress);

  AgentChannel* const channel_;  // null: no agent
  int64_t total_steps_;
  bool sends_ = false;  // this member is rank 0
  bool repeat_ = true;  // when this member next becomes rank 0, it first repeats the kept records
  std::deque<rendezvous::StepRecord> kept_;
  std::optional<rendezvous::StepRecord> last_;
  std::optional<rendezvous::ValidationResult> validation_;
  rendezvous::Progress pending_;
  std::string transport_;
  Time last_flush_{};
  bool first_of_generation_ = false;
};

}  // namespace ringmaster::trainer
