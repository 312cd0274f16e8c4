// SPDX-License-Identifier: Apache-2.0

// How workers of a framework other than native find each other: the variables that its own library or
// launcher reads. The first worker is the meeting point. Pure function.
//   pytorch, deepspeed   torchrun's PET_*; MASTER_ADDR and MASTER_PORT; with one process per worker also
//   RANK,
//                        WORLD_SIZE and their local kin, so that a bare `python train.py` will do
//   tensorflow           TF_CONFIG with all workers
//   jax                  JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID
// A gang has one size for its whole life, so nobody is told of a range.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// Appended to the list `env`. Nothing for native: its agents ask the coordinator.
void AddRendezvous(const api::TrainingJob& job, int32_t rank, const Context& context, Json& env);

}  // namespace ringmaster::wiring
