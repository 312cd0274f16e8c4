// SPDX-License-Identifier: Apache-2.0

#include "cli/run/gang.h"

namespace ringmaster::cli {

void Gang::Order(const core::SetGang& order) {
  if (order.stop) {
    // Nothing to stop before the first coordinator.
    if (term_ > 0 && !stopping_) server_->RequestStop(job_);
    stopping_ = true;
    return;
  }
  if (term_ == 0 || stopping_) {
    rendezvous::CoordinatorOptions options;
    options.job = job_;
    options.min = order.min * order.slots;
    options.target = order.target * order.slots;
    options.max = order.max * order.slots;
    options.slots = order.slots;
    options.term = ++term_;
    server_->AddJob(options);
    stopping_ = false;
    return;
  }
  server_->SetLimits(job_, order.min * order.slots, order.target * order.slots, order.max * order.slots);
}

}  // namespace ringmaster::cli
