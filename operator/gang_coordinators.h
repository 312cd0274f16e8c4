// SPDX-License-Identifier: Apache-2.0

// The controller's orders for all jobs, passed on to the rendezvous server, each job under a term of its own.
//
// A coordinator's term must be above that of every earlier coordinator of the same job, whoever ran it: above
// what the job's status has recorded, and at least the Lease's number of changes (which could start anew when
// somebody deletes the Lease).
//
// Threads: Order and Forget from one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "operator/control/backend.h"
#include "operator/core/model.h"
#include "rendezvous/server.h"

namespace ringmaster::operator_main {

class GangCoordinators {
 public:
  // `server` must outlive the coordinators.
  GangCoordinators(rendezvous::Server& server, int64_t lease_term)
      : server_(server), lease_term_(lease_term) {}

  // `status`: the job's, as far as known: what an earlier coordinator has recorded.
  void Order(const control::Key& key, const std::string& uid, const core::Status& status,
             const core::SetGang& order);
  // The job is gone.
  void Forget(const control::Key& key);

 private:
  struct Gang {
    std::string uid;
    uint32_t term = 0;
    bool stopping = false;
  };

  void Begin(const std::string& job, Gang& gang, const core::Status& status, const core::SetGang& order,
             bool resumed);

  rendezvous::Server& server_;
  const int64_t lease_term_;
  std::mutex mutex_;
  std::map<control::Key, Gang> coordinators_;
};

}  // namespace ringmaster::operator_main
