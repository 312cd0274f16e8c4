// SPDX-License-Identifier: Apache-2.0

#include "operator/gang_coordinators.h"

#include <algorithm>

namespace ringmaster::operator_main {
namespace {

// Deaths on several nodes reach us over a network: what belongs together comes less close together than on
// one machine.
constexpr Duration kGatherWindow = milliseconds(20);

// A node that was cut off or lost its power says nothing. Agents speak five times a second, so three words in
// a row were missed.
constexpr Duration kQuietLimit = milliseconds(700);

uint32_t TermOf(rendezvous::Generation generation) { return static_cast<uint32_t>(generation >> 32); }

}  // namespace

void GangCoordinators::Begin(const std::string& job, Gang& gang, const core::Status& status,
                             const core::SetGang& order, bool resumed) {
  const rendezvous::Generation recorded = status.display.gang_generation;
  rendezvous::CoordinatorOptions options;
  options.job = job;
  options.min = order.min * order.slots;
  options.target = order.target * order.slots;
  options.max = order.max * order.slots;
  options.slots = order.slots;
  gang.term = std::max({gang.term, TermOf(recorded), static_cast<uint32_t>(lease_term_) - 1}) + 1;
  options.term = gang.term;
  options.resumed = resumed && recorded != 0;
  if (options.resumed) {
    options.known_step = status.display.progress.step;
    options.known_checkpoint = status.display.progress.checkpoint_step;
  }
  options.gather_window = kGatherWindow;
  options.unresponsive_limit = kQuietLimit;
  server_.AddJob(options);
  gang.stopping = false;
}

void GangCoordinators::Order(const control::Key& key, const std::string& uid, const core::Status& status,
                             const core::SetGang& order) {
  const std::string job = key.ToString();
  std::lock_guard lock(mutex_);
  auto [it, first] = coordinators_.try_emplace(key);
  Gang& gang = it->second;
  const bool another = !first && gang.uid != uid;
  gang.uid = uid;
  // The first order of this process takes over from an earlier leader; one after a stop begins anew; and a
  // job of the same name is not the one before it.
  if (first || another || (gang.stopping && !order.stop))
    Begin(job, gang, status, order, first);
  else
    server_.SetLimits(job, order.min * order.slots, order.target * order.slots, order.max * order.slots);
  server_.SetAttempt(job, order.attempt);
  if (order.stop && !gang.stopping) {
    server_.RequestStop(job);
    gang.stopping = true;
  }
}

void GangCoordinators::Forget(const control::Key& key) {
  std::lock_guard lock(mutex_);
  if (coordinators_.erase(key) > 0) server_.RemoveJob(key.ToString());
}

}  // namespace ringmaster::operator_main
