// SPDX-License-Identifier: Apache-2.0

#include "cli/run/gang_coordinator.h"

#include "operator/control/coordinator_options.h"

namespace ringmaster::cli {

void GangCoordinator::Order(const core::SetGang& order, int64_t checkpoint_step) {
  if (order.stop) {
    // Before the first coordinator there is nothing to stop.
    if (term_ > 0 && !stopping_) server_->RequestStop(job_);
    stopping_ = true;
    return;
  }
  if (term_ == 0 || stopping_) {
    rendezvous::CoordinatorOptions options = control::CoordinatorOptionsOf(job_, order);
    options.term = ++term_;
    options.known_checkpoint = checkpoint_step;
    server_->AddJob(options);
    stopping_ = false;
    return;
  }
  server_->SetLimits(job_, control::LimitsOf(order));
  if (order.programs) server_->AllowRestart(job_, order.accounted);
}

}  // namespace ringmaster::cli
