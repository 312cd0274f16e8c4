// SPDX-License-Identifier: Apache-2.0

// Trainer is one member of a job, from Join to Exit. It waits until a generation is formed, trains in it
// until the generation ends, and waits again; start reading at Run and RunGeneration.
// docs/internals/recovery.md describes the same protocol from the coordinator's side.
//
// Not thread-safe: Run belongs to the process's main thread. The channel's reader thread only aborts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/trainer_page.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/trainer/agent_channel.h"
#include "worker/trainer/checkpoint_saver.h"
#include "worker/trainer/checkpoint_search.h"
#include "worker/trainer/data_hash.h"
#include "worker/trainer/progress_log.h"
#include "worker/trainer/reporter.h"
#include "worker/trainer/run_config.h"
#include "worker/trainer/state_loader.h"
#include "worker/trainer/step.h"
#include "worker/trainer/validate.h"

namespace ringmaster::trainer {

class Trainer {
 public:
  struct Parts {
    std::string member;  // id of this incarnation
    RunConfig config;
    std::unique_ptr<data::Dataset> dataset;
    std::unique_ptr<DataHash> data_hash;  // of `dataset`; null after the Join
    // In this order: the device uses the fabric's memory, and the model uses the device.
    std::unique_ptr<fabric::Fabric> fabric;
    std::unique_ptr<device::Device> device;
    std::unique_ptr<engine::Model> model;
    agent::TrainerPage* page;
    AgentChannel* channel;
  };
  static Result<std::unique_ptr<Trainer>> Create(Parts parts);

  // Joins the job and obeys orders until Exit. Returns the exit code (main.h).
  int Run();

 private:
  explicit Trainer(Parts parts);

  // Waits for the hash of the data and joins the job. Returns the exit code if the trainer must end instead.
  std::optional<int> JoinJob();
  // Answers with this member's status.
  Status Answer(const rendezvous::Prepare& prepare);
  // Takes part in a generation until it ends. OK: paused at a boundary, or done.
  Status RunGeneration(const rendezvous::NewGeneration& formed);
  Status Connect(const fabric::Membership& group);
  std::string Transport() const;
  // Fails if the job requires RDMA and the transport uses TCP.
  Status CheckRdma();
  // Brings all members to the state at which the generation starts.
  Status Synchronize(const rendezvous::NewGeneration& formed);
  // Copies the state to the members that lack it: at once, or during the next steps (join_).
  Status ShareWithJoining(const rendezvous::NewGeneration& formed, const std::vector<int32_t>& sources);
  // Sends the rest of the state to joining members, when all members must have it.
  Status FinishJoin();
  // Shows users how much of the state joining members have.
  void ReportJoin();
  // Compares the state that this member fetched with the hashes of the members' vote.
  Status CompareWithVote(const rendezvous::NewGeneration& formed);
  // Collective: compares the states of all members. Errors: kUnavailable when they differ; the members then
  // vote on them.
  Status CompareMembers();
  // Collective: gets the first state on the rank `root`, and returns when it is there. `floor`: a checkpoint
  // of this step is known to exist.
  Status LoadOnRoot(int root, int64_t floor);
  Status AdoptLoaded(const StateLoader& loader, int64_t floor);
  Status Load(const checkpoint::Loaded& loaded);
  // Reports how the run differs from the one that wrote the checkpoint.
  // Trains until the last step or a boundary at which the members pause.
  Status RunSteps();
  // Collective: validates the state if its step asks for it and no member has done it.
  Status ValidateIfDue();
  Result<Validation> Validate();
  // Writes the last checkpoint and sends Done. `finished`: all steps are done.
  Status Finish(bool finished);
  Result<checkpoint::Snapshot> TakeSnapshot();
  void Disconnect();
  // Reports that a restart would not help, waits for Exit, and returns the exit code.
  int FailPermanently(const std::string& message);

  Parts parts_;
  const engine::Layout& layout_;
  const checkpoint::Identity identity_;
  std::unique_ptr<TrainState> state_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<fabric::Communicator> comm_;
  std::unique_ptr<fabric::AsyncCommunicator> device_comm_;  // reduces device memory; uses comm_; may be null
  std::unique_ptr<JoinTransfer> join_;                      // uses comm_; null: every member has the state
  std::unique_ptr<StateLoader> loader_;  // of the first state; outlives generations until one has adopted it
  CheckpointSearch search_;
  Reporter reporter_;
  ProgressLog progress_log_;
  CheckpointSaver saver_;                   // uses reporter_
  std::vector<std::string> pods_;           // of the members, by rank
  std::optional<std::string> diverged_;     // which states differ
  std::optional<std::string> fatal_;        // why the job cannot continue
  std::optional<std::string> unreachable_;  // why not, in case the unreachable peers turn out to be alive
  Time last_commit_{};
};

}  // namespace ringmaster::trainer
