// SPDX-License-Identifier: Apache-2.0

// Passes the controller's SetGang orders to the rendezvous server. A coordinator serves until an order stops
// it. When the job resumes, the next coordinator gets a higher term, so that its generations are above those
// of the one before.
//
// Not thread-safe: the control loop's thread calls Order.
#pragma once

#include <cstdint>
#include <string>

#include "operator/core/model.h"
#include "rendezvous/server.h"

namespace ringmaster::cli {

class GangCoordinator {
 public:
  GangCoordinator(rendezvous::Server* server, std::string job) : server_(server), job_(std::move(job)) {}

  // `checkpoint_step`: the newest checkpoint that this run has published, -1 for none. After a suspension,
  // training does not start over from an older state.
  void Order(const core::SetGang& order, int64_t checkpoint_step);

 private:
  rendezvous::Server* const server_;
  const std::string job_;
  uint32_t term_ = 0;  // 0: no coordinator yet
  bool stopping_ = false;
};

}  // namespace ringmaster::cli
