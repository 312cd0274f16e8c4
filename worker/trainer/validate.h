// SPDX-License-Identifier: Apache-2.0

// Loss and accuracy over the validation split. The ranks share the split in fixed pieces and sum the results
// in the order of the pieces: every rank gets the same bits, for any world size. A rank that has not all of
// the state evaluates no piece, so a validation does not wait for a join. Not thread-safe; main thread only.
#pragma once

#include <functional>
#include <span>

#include "base/result.h"
#include "worker/agent/trainer/trainer_page.h"
#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/join_transfer.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::trainer {

struct Validation {
  int64_t samples = 0;  // that were evaluated; 0: there is no validation split
  double loss = 0;      // mean over samples
  double accuracy = 0;  // fraction of correct predictions
};

// Collective. `page`, if not null, shows that this rank waits for the device (unless `on_host`), and for the
// others after it has done its share. While `join`, which may be null, is not done, its owners share the
// pieces. Errors: kCancelled after `cancel`; the fabric's errors.
Result<Validation> Validate(const RunConfig& config, const data::Dataset& dataset, engine::Model* model,
                            const engine::Params& params, fabric::Communicator* comm,
                            const std::atomic<bool>* cancel, agent::TrainerPage* page,
                            const JoinTransfer* join = nullptr, bool on_host = true);

}  // namespace ringmaster::trainer
