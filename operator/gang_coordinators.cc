// SPDX-License-Identifier: Apache-2.0

#include "operator/gang_coordinators.h"

#include <algorithm>

#include "operator/control/coordinator_options.h"

namespace ringmaster::operator_main {
namespace {

// A failure of several nodes reaches the coordinator over a network, so its parts arrive further apart than
// on one machine.
constexpr Duration kGatherWindow = milliseconds(20);

// The lower bits of a term count the starts of a job's coordinator under one leader. The next leader begins
// above them even if the status does not show the newest of them yet.
constexpr int kStartBits = 10;

uint32_t TermOf(rendezvous::Generation generation) { return static_cast<uint32_t>(generation >> 32); }

}  // namespace

void GangCoordinators::Start(const control::Key& key, Coordinator& coordinator, const core::Status& status,
                             const core::SetGang& order, bool take_over) {
  const rendezvous::Generation recorded = status.display.gang_generation;
  const auto of_lease = static_cast<uint32_t>(std::max<int64_t>(lease_term_, 1) << kStartBits);
  coordinator.term = std::max({coordinator.term, TermOf(recorded), of_lease - 1}) + 1;
  coordinator.stopping = false;
  rendezvous::CoordinatorOptions options = control::CoordinatorOptionsOf(key.ToString(), order);
  options.uid = coordinator.uid;
  options.term = coordinator.term;
  options.resumed = take_over && recorded != 0;
  if (options.resumed) options.known_step = status.display.progress.step;
  // After a suspension, too, the checkpoint must still be there.
  if (recorded != 0) options.known_checkpoint = status.display.progress.checkpoint_step;
  options.gather_window = kGatherWindow;
  options.domain_of = [domain_of = domain_of_, key](const std::string& node) { return domain_of(key, node); };
  server_.AddJob(options);
}

void GangCoordinators::Order(const control::Key& key, const std::string& uid, const core::Status& status,
                             const core::SetGang& order) {
  const std::string job = key.ToString();
  MutexLock lock(mutex_);
  auto [it, first] = coordinators_.try_emplace(key);
  Coordinator& coordinator = it->second;
  const bool replaced = !first && coordinator.uid != uid;
  coordinator.uid = uid;
  // A new coordinator starts for the first order of this process (it takes over from an earlier leader), for
  // the first order after a stop, and for a job that replaced another of the same name.
  if (first || replaced || (coordinator.stopping && !order.stop)) {
    Start(key, coordinator, status, order, first);
  } else {
    server_.SetLimits(job, control::LimitsOf(order));
    if (order.programs) server_.AllowRestart(job, order.accounted);
  }
  server_.SetAttempt(job, order.attempt);
  if (order.stop && !coordinator.stopping) {
    server_.RequestStop(job);
    coordinator.stopping = true;
  }
}

void GangCoordinators::Forget(const control::Key& key) {
  MutexLock lock(mutex_);
  if (coordinators_.erase(key) > 0) server_.RemoveJob(key.ToString());
}

void GangCoordinators::ForgetUnneeded(const control::Key& key, const core::Observed& observed) {
  const bool ended =
      observed.status.ended() && std::none_of(observed.pods.begin(), observed.pods.end(),
                                              [](const core::Pod& pod) { return pod.alive(); });
  MutexLock lock(mutex_);
  const auto known = coordinators_.find(key);
  if (known == coordinators_.end() || (!ended && known->second.uid == observed.job.uid)) return;
  coordinators_.erase(known);
  server_.RemoveJob(key.ToString());
}

}  // namespace ringmaster::operator_main
