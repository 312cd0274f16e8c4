// SPDX-License-Identifier: Apache-2.0

// Rendezvous variables for jobs without agents (`launch.kind: none`): the variables that the framework's
// library or launcher reads. An agent sets those of each incarnation itself. The first worker is the
// rendezvous point. Pure function.
//   pytorch, deepspeed   torchrun's PET_*; MASTER_ADDR and MASTER_PORT; with one process per worker also
//                        RANK, WORLD_SIZE and their LOCAL_ variants, so that `python train.py` works
//   tensorflow           TF_CONFIG with all workers
//   jax                  JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID; and the names of JAXJob
//                        COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES, PROCESS_ID
// The size of such a gang is fixed, so no elastic range is set.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// Appends the variables to the list `env`.
void AddRendezvous(const api::TrainingJob& job, int32_t rank, const Context& context, Json& env);

}  // namespace ringmaster::wiring
