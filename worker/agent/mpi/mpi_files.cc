// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "worker/agent/mpi/horovod_run.h"
#include "worker/agent/mpi/mpi_hydra.h"
#include "worker/agent/mpi/mpi_rsh.h"
#include "worker/agent/shell/program_environment.h"

namespace ringmaster::agent {
namespace {

constexpr const char* kNoKey = "-";  // in the file of the peers

// Replaces `link` by a link to the agent.
Status LinkToAgent(const std::string& agent, const std::string& link) {
  ::unlink(link.c_str());
  if (::symlink(agent.c_str(), link.c_str()) != 0) return ErrnoError("create " + link, errno);
  return Ok();
}

bool UsesHydra(const MpiSetup& setup) {
  return setup.implementation == "mpich" || setup.implementation == "intel";
}

bool HasLinks(const MpiSetup& setup) { return UsesHydra(setup) || setup.framework == "horovod"; }

}  // namespace

int32_t LauncherAmong(const std::vector<rendezvous::Member>& members) {
  const auto it = std::find_if(members.begin(), members.end(),
                               [](const rendezvous::Member& member) { return member.role == "launcher"; });
  return it == members.end() ? 0 : static_cast<int32_t>(it - members.begin());
}

std::string MpiHosts(const std::vector<rendezvous::Member>& members, int32_t slots, bool words) {
  std::string text;
  for (const rendezvous::Member& member : members) {
    if (!member.role.empty()) continue;
    text += fmt::format(fmt::runtime(words ? "{} slots={}\n" : "{}:{}\n"), HostOf(member), slots);
  }
  return text;
}

std::string HostOf(const rendezvous::Member& member) {
  return member.joined == 0 ? member.pod : fmt::format("{}.{}", member.pod, member.joined);
}

Status WriteMpiMembers(const MpiSetup& setup, const std::vector<rendezvous::Member>& members) {
  std::string peers;
  for (const rendezvous::Member& member : members) {
    const auto [host, port] = SplitAddress(member.address);
    peers +=
        fmt::format("{} {} {} {}\n", HostOf(member), host, port, member.key.empty() ? kNoKey : member.key);
  }
  RM_TRY(WriteFileAtomic(setup.folder + kMpiPeers, peers));
  RM_TRY(WriteFileAtomic(setup.folder + kMpiHosts, MpiHosts(members, setup.slots, !UsesHydra(setup))));
  if (setup.framework != "horovod") return Ok();
  return WriteFileAtomic(setup.folder + kHorovodHosts, MpiHosts(members, setup.slots, true));
}

Status WriteMpiFiles(const MpiSetup& setup, const rendezvous::StartProgram& order) {
  const std::string& folder = setup.folder;
  RM_TRY(WriteMpiMembers(setup, order.members));
  RM_TRY(LinkToAgent(setup.agent, folder + kMpiRsh));
  if (!HasLinks(setup)) return Ok();
  const std::string bin = folder + kMpiBin;
  RM_TRY(MakeFolder(bin));
  const auto link = [&](std::string_view name) {
    return LinkToAgent(setup.agent, fmt::format("{}/{}", bin, name));
  };
  if (UsesHydra(setup))
    for (const std::string_view name : kHydraNames) RM_TRY(link(name));
  if (setup.framework != "horovod") return Ok();
  for (const std::string_view name : {kHorovodRun, kSsh, kRingmaster}) RM_TRY(link(name));
  return Ok();
}

Result<std::vector<MpiPeer>> ReadMpiPeers(const std::string& folder) {
  RM_ASSIGN(const std::string text, ReadFile(folder + kMpiPeers));
  std::vector<MpiPeer> peers;
  std::istringstream lines(text);
  for (MpiPeer peer; lines >> peer.pod >> peer.host >> peer.port >> peer.key;) {
    // As a key, the mark would be one that every process knows.
    if (peer.key == kNoKey) peer.key.clear();
    peers.push_back(peer);
  }
  return peers;
}

Result<MpiPeer> FindMpiPeer(const std::vector<MpiPeer>& peers, const std::string& pod) {
  const auto it = std::find_if(peers.begin(), peers.end(), [&](const MpiPeer& p) { return p.pod == pod; });
  if (it != peers.end()) return *it;
  std::string names;
  for (const MpiPeer& peer : peers) {
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + peer.pod;
  }
  return Error{Code::kNotFound,
               fmt::format("host {} is not a worker of this job, which has: {}", pod, names)};
}

Result<MpiPlace> FindMpiPlace() {
  const char* const folder = std::getenv(kMpiFolderVariable);
  const char* const host = std::getenv(kMpiHostVariable);
  std::error_code error;
  const std::string agent = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (folder == nullptr || host == nullptr || error)
    return Error{Code::kInvalid, "this is not a pod of a job of framework mpi or horovod"};
  RM_ASSIGN(std::vector<MpiPeer> peers, ReadMpiPeers(folder));
  RM_ASSIGN(MpiPeer self, FindMpiPeer(peers, host));
  return MpiPlace{folder, agent, std::move(self), std::move(peers)};
}

std::vector<std::string> MpiVariables(const MpiSetup& setup, bool loopback, const std::string& path,
                                      bool (*is_set)(const char* name)) {
  const std::string& folder = setup.folder;
  std::vector<std::string> list = {fmt::format("{}={}", kMpiFolderVariable, folder),
                                   fmt::format("{}={}", kMpiHostVariable, setup.host)};
  const auto add = [&](const char* name, const std::string& value) {
    list.push_back(fmt::format("{}={}", name, value));
  };
  const auto add_default = [&](const char* name, const std::string& value) {
    if (!is_set(name)) add(name, value);
  };
  const std::string rsh = folder + kMpiRsh;
  const std::string hosts = folder + kMpiHosts;
  if (setup.implementation == "openmpi") {
    // Version 4, and 5, whose launcher is PRRTE. Each ignores the variables of the other.
    const std::string rank = setup.agent + " rank";
    // Its daemons get these settings, too, and do not start when this program does not exist: each pod has
    // the agent in the same place, but a folder with another name.
    const std::string remote = setup.agent + " rsh";
    add("OMPI_MCA_plm_rsh_agent", remote);
    add("OMPI_MCA_plm_rsh_no_tree_spawn", "1");
    add("OMPI_MCA_orte_leave_session_attached", "1");
    add("OMPI_MCA_orte_default_hostfile", hosts);
    add("OMPI_MCA_orte_keep_fqdn_hostnames", "1");
    add("OMPI_MCA_orte_fork_agent", rank);
    add("PRTE_MCA_plm_ssh_agent", remote);
    add("PRTE_MCA_plm_ssh_no_tree_spawn", "1");
    add("PRTE_MCA_prte_default_hostfile", hosts);
    add("PRTE_MCA_prte_keep_fqdn_hostnames", "1");
    add("PRTE_MCA_odls_base_exec_agent", rank);
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"})
      add_default(name, "1");
    // Pods of one node do not know of each other: each would bind its first rank to the same core.
    add_default("OMPI_MCA_hwloc_base_binding_policy", "none");
    add_default("PRTE_MCA_hwloc_default_binding_policy", "none");
    if (loopback) {
      // By default loopback is left out, and pods of one machine have no other address in common.
      for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"})
        add_default(name, "lo");
      // The collectives of Open MPI 5 by nodes tell nodes apart by their host names, which are the same here:
      // its ranks would wait for each other, or use wrong data.
      add_default("OMPI_MCA_coll_han_priority", "0");
    }
  }
  if (HasLinks(setup)) add("PATH", folder + kMpiBin + ":" + path);
  if (setup.implementation == "mpich") {
    add("HYDRA_HOST_FILE", hosts);
    add("HYDRA_LAUNCHER", "ssh");
    add("HYDRA_LAUNCHER_EXEC", rsh);
  }
  if (setup.implementation == "intel") {
    add("I_MPI_HYDRA_HOST_FILE", hosts);
    add("I_MPI_HYDRA_BOOTSTRAP", "ssh");
    add("I_MPI_HYDRA_BOOTSTRAP_EXEC", rsh);
    add_default("I_MPI_PERHOST", std::to_string(setup.slots));
    add_default("I_MPI_PIN", "0");  // as for Open MPI
  }
  // Each pod keeps its own session folders.
  if (loopback) add("TMPDIR", folder);
  if (loopback) add(kMpiLocalVariable, "1");
  return list;
}

}  // namespace ringmaster::agent
