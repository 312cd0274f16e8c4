// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/program_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace ringmaster::agent {
namespace {

struct Place {
  int32_t rank = 0;
  int32_t world = 0;
  int32_t local_rank = 0;
  int32_t local_world = 0;
  int32_t pod = 0;  // which of the pods
  int32_t pods = 0;
};

// REQUIRES: all members are of one role.
Place PlaceOf(const std::vector<rendezvous::Member>& members, int32_t rank) {
  const std::string& own = members[static_cast<size_t>(rank)].pod;
  Place place{.rank = rank, .world = static_cast<int32_t>(members.size())};
  for (size_t i = 0; i < members.size(); ++i) {
    const bool first_of_pod = i == 0 || members[i].pod != members[i - 1].pod;
    place.pods += first_of_pod ? 1 : 0;
    if (members[i].pod != own) continue;
    if (place.local_world++ == 0) place.pod = place.pods - 1;
    if (static_cast<int32_t>(i) < rank) ++place.local_rank;
  }
  return place;
}

class Variables {
 public:
  template <class T>
  void Add(const char* name, const T& value) {
    list_.push_back(fmt::format("{}={}", name, value));
  }
  std::vector<std::string> Take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

void AddPytorch(const Place& place, const rendezvous::StartProgram& order, Variables& out) {
  const auto [host, port] = SplitAddress(order.members.front().address);
  out.Add("MASTER_ADDR", host);
  out.Add("MASTER_PORT", port);
  out.Add("RANK", place.rank);
  out.Add("WORLD_SIZE", place.world);
  out.Add("LOCAL_RANK", place.local_rank);
  out.Add("LOCAL_WORLD_SIZE", place.local_world);
  out.Add("GROUP_RANK", place.pod);
  // torchrun takes its options from these. The agent restarts the gang, so torchrun must not.
  out.Add("PET_NNODES", place.pods);
  out.Add("PET_NODE_RANK", place.pod);
  out.Add("PET_MASTER_ADDR", host);
  out.Add("PET_MASTER_PORT", port);
  out.Add("PET_RDZV_ID", order.generation);
  out.Add("PET_MAX_RESTARTS", 0);
}

// The cluster does not contain evaluators, which are separate tasks.
void AddTensorflow(const Place& place, const rendezvous::StartProgram& order, const std::string& role,
                   Variables& out) {
  Json cluster = Json::object();
  for (const rendezvous::Member& member : order.members) {
    const std::string type = member.role.empty() ? "worker" : member.role;
    if (type != "evaluator") cluster[type].push_back(member.address);
  }
  const Json config = {{"cluster", std::move(cluster)},
                       {"task", {{"type", role.empty() ? "worker" : role}, {"index", place.rank}}}};
  out.Add("TF_CONFIG", DumpJson(config));
}

void AddJax(const Place& place, const rendezvous::StartProgram& order, Variables& out) {
  out.Add("JAX_COORDINATOR_ADDRESS", order.members.front().address);
  out.Add("JAX_NUM_PROCESSES", place.world);
  out.Add("JAX_PROCESS_ID", place.rank);
  // What the program of a JAXJob reads by itself: JAX knows none of these names.
  const auto [host, port] = SplitAddress(order.members.front().address);
  out.Add("COORDINATOR_ADDRESS", host);
  out.Add("COORDINATOR_PORT", port);
  out.Add("NUM_PROCESSES", place.world);
  out.Add("PROCESS_ID", place.rank);
}

}  // namespace

bool HasLocalRank(const std::string& framework) { return framework == "pytorch" || framework == "deepspeed"; }

std::pair<std::string, std::string> SplitAddress(const std::string& address) {
  const size_t colon = std::min(address.rfind(':'), address.size());
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, colon < address.size() ? address.substr(colon + 1) : ""};
}

std::vector<std::string> ProgramEnvironment(const std::string& framework,
                                            const rendezvous::StartProgram& order, int32_t rank) {
  CHECK(rank >= 0 && static_cast<size_t>(rank) < order.members.size(), "rank {}", rank);
  // The ranks of a framework are those of its workers. Another role counts its programs for itself.
  const std::string& role = order.members[static_cast<size_t>(rank)].role;
  std::vector<rendezvous::Member> alike;
  int32_t index = 0;
  for (size_t i = 0; i < order.members.size(); ++i) {
    if (order.members[i].role != role) continue;
    if (static_cast<int32_t>(i) == rank) index = static_cast<int32_t>(alike.size());
    alike.push_back(order.members[i]);
  }
  const Place place = PlaceOf(alike, index);
  Variables out;
  if (role.empty() && framework != "mpi" && framework != "horovod") {
    out.Add("RINGMASTER_RANK", place.rank);
    out.Add("RINGMASTER_WORLD_SIZE", place.world);
  }
  if (alike.size() < order.members.size() || !role.empty()) {
    out.Add("RINGMASTER_ROLE", role.empty() ? "worker" : role);
    out.Add("RINGMASTER_ROLE_INDEX", place.rank);
  }
  out.Add("RINGMASTER_INCARNATION", order.generation);
  if (HasLocalRank(framework)) AddPytorch(place, order, out);
  if (framework == "deepspeed") out.Add("LOCAL_SIZE", place.local_world);
  if (framework == "tensorflow") AddTensorflow(place, order, role, out);
  if (framework == "jax") AddJax(place, order, out);
  return out.Take();
}

}  // namespace ringmaster::agent
