// SPDX-License-Identifier: Apache-2.0

// What wiring must know of a job beside the job itself: its gang's provider, its ports, the authority.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/kube/backend/kube_backend.h"
#include "operator/kube/backend/prepared_mark.h"

namespace ringmaster::kube {

wiring::Context KubeBackend::ContextOf(const JobRecord& job) const {
  wiring::Context context = options_.context(job.key);
  context.gang = GangOf(job);
  context.host_port_base = PortsOf(job).first;
  std::lock_guard lock(mutex_);
  context.coordinator_ca_pem = authority_pem_;
  return context;
}

PortRange KubeBackend::PortsOf(const JobRecord& job) const {
  if (!job.spec->host_network) return {};
  {
    std::lock_guard lock(mutex_);
    if (const JobState& state = StateOf(job); state.ports.count > 0) return state.ports;
  }
  for (const Store<ObjectRecord>* store : {&services_, &config_maps_})
    for (const auto& record : store->Group(job.key.ToString()))
      if (const auto mark = ParseMark(*record->prepared_for); mark && record->owner->uid == job.uid)
        return mark->ports;
  return {};
}

Result<PortRange> KubeBackend::AllotPorts(const JobRecord& job) {
  if (!job.spec->host_network) return PortRange{};
  const int64_t wanted = int64_t{std::max(job.spec->job.max, job.spec->job.replicas)} * job.spec->job.slots *
                         wiring::kHostPortsPerRank;
  const PortRange all = options_.host_ports;
  const Error none{Code::kExhausted,
                   fmt::format("needs {} ports of its own on hostNetwork: no {} in a row of {}-{} are free",
                               wanted, wanted, all.first, all.first + all.count - 1)};
  if (wanted > all.count) return none;
  if (const PortRange held = PortsOf(job); held.count >= wanted) return held;
  std::lock_guard lock(mutex_);
  std::vector<PortRange> taken;
  for (const auto& [name, state] : job_states_) taken.push_back(state.ports);
  for (const Store<ObjectRecord>* store : {&services_, &config_maps_})
    for (const auto& record : store->All())
      if (const auto mark = ParseMark(*record->prepared_for)) taken.push_back(mark->ports);
  const auto found = FreePorts(all, std::move(taken), static_cast<int32_t>(wanted));
  if (!found) return none;
  StateOf(job).ports = *found;
  return *found;
}

}  // namespace ringmaster::kube
