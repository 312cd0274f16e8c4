// SPDX-License-Identifier: Apache-2.0

// Loss and accuracy over the validation split, shared among the ranks by fixed pieces and summed in the order
// of the pieces: every rank gets the same bits, whatever the world size. `slot`, if any, is told when this
// rank has done its share and waits for the others'. Thread rule: main thread.
#pragma once

#include <functional>
#include <span>

#include "base/result.h"
#include "worker/agent/trainer_page.h"
#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::trainer {

struct Validation {
  int64_t samples = 0;  // 0: there is no validation split
  double loss = 0;      // mean over samples
  double accuracy = 0;  // share of predictions that are right
};

Result<Validation> Validate(const RunConfig& config, const data::Dataset& dataset, engine::Model* model,
                            const engine::Params& params, fabric::Communicator* comm,
                            const std::atomic<bool>* cancel, agent::TrainerPage* page);

}  // namespace ringmaster::trainer
