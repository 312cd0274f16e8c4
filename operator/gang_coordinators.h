// SPDX-License-Identifier: Apache-2.0

// Passes the controller's SetGang orders for all jobs to the rendezvous server, and picks each coordinator's
// term.
//
// A coordinator's term must be above that of every earlier coordinator of the same job, in this process or
// another: above the term in the job's status, and at least the Lease's number of transitions times the
// starts that a leader may need (the number restarts from zero when a user deletes the Lease; then members
// report the numbers that they have seen).
//
// Thread-safe; the caller serializes the orders for one job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "operator/control/backend.h"
#include "operator/core/model.h"
#include "rendezvous/server.h"

namespace ringmaster::operator_main {

class GangCoordinators {
 public:
  // The domain of a node, by the topology of a job; empty: none.
  using DomainOf = std::function<std::string(const control::Key&, const std::string& node)>;

  // `domain_of` is called on the server's thread. REQUIRES: `server` outlives this object.
  GangCoordinators(rendezvous::Server& server, int64_t lease_term, DomainOf domain_of)
      : server_(server), lease_term_(lease_term), domain_of_(std::move(domain_of)) {}

  // `status`: the job's last known status, with what an earlier coordinator recorded.
  void Order(const control::Key& key, const std::string& uid, const core::Status& status,
             const core::SetGang& order);
  // Removes a job that no longer exists.
  void Forget(const control::Key& key);
  // The same for one that another job of this name has replaced, and for one that has ended: its coordinator
  // stays until none of the job's pods lives, since their agents may still need the order to exit. Call it
  // for each observation of a job.
  void ForgetUnneeded(const control::Key& key, const core::Observed& observed);

 private:
  struct Coordinator {
    std::string uid;
    uint32_t term = 0;
    bool stopping = false;
  };

  // `take_over`: an earlier process may have run a coordinator for this job.
  void Start(const control::Key& key, Coordinator& coordinator, const core::Status& status,
             const core::SetGang& order, bool take_over) RM_REQUIRES(mutex_);

  rendezvous::Server& server_;
  const int64_t lease_term_;
  const DomainOf domain_of_;
  Mutex mutex_;
  std::map<control::Key, Coordinator> coordinators_ RM_GUARDED_BY(mutex_);
};

}  // namespace ringmaster::operator_main
