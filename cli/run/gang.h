// SPDX-License-Identifier: Apache-2.0

// The controller's orders for the gang, passed on to the coordinator. One coordinator serves until it was
// told to stop; when the job goes on after that (resume after suspend), the next one gets a higher term, so
// its generations are above everything of the one before.
//
// Thread rule: Order comes from the loop's thread only.
#pragma once

#include <cstdint>
#include <string>

#include "operator/core/model.h"
#include "rendezvous/server.h"

namespace ringmaster::cli {

class Gang {
 public:
  Gang(rendezvous::Server* server, std::string job) : server_(server), job_(std::move(job)) {}

  void Order(const core::SetGang& order);

 private:
  rendezvous::Server* const server_;
  const std::string job_;
  uint32_t term_ = 0;  // 0: no coordinator yet
  bool stopping_ = false;
};

}  // namespace ringmaster::cli
