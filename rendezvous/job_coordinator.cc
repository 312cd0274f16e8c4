// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/job_coordinator.h"

#include "rendezvous/coordinator.h"
#include "rendezvous/program_coordinator.h"

namespace ringmaster::rendezvous {

std::unique_ptr<JobCoordinator> MakeCoordinator(const CoordinatorOptions& options) {
  if (options.programs) return std::make_unique<ProgramCoordinator>(options);
  return std::make_unique<Coordinator>(options);
}

}  // namespace ringmaster::rendezvous
