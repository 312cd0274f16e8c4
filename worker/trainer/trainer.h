// SPDX-License-Identifier: Apache-2.0

// A trainer: one member of a job, from Join to Exit. It stands still until a generation is formed, takes part
// in it until something ends it, and stands still again. docs/internals/recovery.md tells the same from the
// coordinator's side.
//
// Thread rule: Run on the process's main thread; the channel's reader thread only aborts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer_page.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/trainer/channel.h"
#include "worker/trainer/reporter.h"
#include "worker/trainer/run_config.h"
#include "worker/trainer/step.h"
#include "worker/trainer/validate.h"

namespace ringmaster::trainer {

class Trainer {
 public:
  struct Parts {
    std::string member;  // id of this incarnation
    RunConfig config;
    std::unique_ptr<data::Dataset> dataset;
    std::unique_ptr<fabric::Fabric> fabric;
    std::unique_ptr<device::Device> device;  // uses the fabric's memory, and is used by the model
    std::unique_ptr<engine::Model> model;
    agent::TrainerPage* page;
    Channel* channel;
  };
  static Result<std::unique_ptr<Trainer>> Create(Parts parts);

  // Joins and works until told to exit; returns the exit code.
  int Run();

 private:
  explicit Trainer(Parts parts);

  Status Answer(const rendezvous::Prepare& prepare);
  // Takes part in a generation until it ends. OK: standing still at a boundary, or done.
  Status Work(const rendezvous::NewGeneration& formed);
  Status Connect(const fabric::Group& group);
  std::string Transport() const;
  Status CheckRdma();
  Status Synchronize(const rendezvous::NewGeneration& formed);
  Status LoadOrInitialize(const std::optional<Result<checkpoint::Loaded>>& found);
  Status Load(const checkpoint::Loaded& loaded);
  Status RunSteps();
  Result<Validation> Validate();
  Status Finish(bool finished);
  // In the background, unless the one before is still being written.
  Status SaveCheckpoint();
  // The last one; all members call it, and return when it is written.
  Status SaveLastCheckpoint();
  Result<checkpoint::Snapshot> TakeSnapshot();
  void ReportPublished();
  void Disconnect();
  // No restart helps: say so, and leave when the agent agrees.
  int FailPermanently(const std::string& message);

  Parts parts_;
  const engine::Layout& layout_;
  const std::string fingerprint_;
  std::unique_ptr<TrainState> state_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<fabric::Communicator> comm_;
  std::unique_ptr<fabric::AsyncCommunicator>
      device_comm_;                             // on the device's memory, on top of comm_; often missing
  std::unique_ptr<checkpoint::Writer> writer_;  // made when this member first writes one
  Reporter reporter_;
  std::optional<std::string> fatal_;        // why the job cannot go on
  std::optional<std::string> unreachable_;  // why it cannot, if the peers that we did not reach live
  int64_t published_step_ = -1;
  Time last_commit_{};
};

}  // namespace ringmaster::trainer
