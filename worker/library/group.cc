// SPDX-License-Identifier: Apache-2.0

#include "worker/library/group.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "worker/fabric/address.h"

namespace ringmaster::library {

Result<std::unique_ptr<Group>> Group::Open(const std::string& transport, Duration timeout) {
  fabric::FabricOptions options;
  options.transport = transport;
  options.timeout = timeout;
  RM_ASSIGN(auto fabric, fabric::Fabric::Create(options));
  return std::unique_ptr<Group>(new Group(std::move(fabric)));
}

Status Group::Connect(const fabric::Membership& membership) {
  if (membership.generation <= generation_)
    return Error{Code::kInvalid, fmt::format("generation {} is not larger than the last one, {}",
                                             membership.generation, generation_)};
  const int world = static_cast<int>(membership.addresses.size());
  if (membership.rank < 0 || membership.rank >= world)
    return Error{Code::kInvalid, fmt::format("no rank {} in a world of {}", membership.rank, world)};
  communicator_.reset();
  generation_ = membership.generation;
  RM_ASSIGN(communicator_, fabric_->Connect(membership));
  transport_ = fabric_->TransportName();
  std::vector<Process> processes;
  for (int rank = 0; rank < world; ++rank) {
    RM_ASSIGN(const auto member, fabric::DecodeAddress(membership.addresses[static_cast<size_t>(rank)]));
    if (member.host_id != fabric::HostId() || member.pid == ::getpid()) continue;
    Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(member.pid), 0)));
    if (fd.valid()) processes.push_back({rank, std::move(fd)});
  }
  const MutexLock lock(mutex_);
  processes_ = std::move(processes);
  return Ok();
}

int Group::Lost(int first) const {
  const MutexLock lock(mutex_);
  for (const Process& process : processes_) {
    if (process.rank < first) continue;
    pollfd poll = {process.fd.get(), POLLIN, 0};
    if (::poll(&poll, 1, 0) > 0) return process.rank;
  }
  return -1;
}

Status Group::CheckConnected() const {
  if (communicator_ != nullptr) return Ok();
  return Error{Code::kInvalid, "the group is not connected"};
}

Status Group::CheckShares(uint64_t size) const {
  const auto world = static_cast<uint64_t>(communicator_->world());
  if (size % world == 0) return Ok();
  return Error{Code::kInvalid, fmt::format("a size of {} is not {} equal shares", size, world)};
}

Status Group::CheckRank(int rank) const {
  if (rank >= 0 && rank < communicator_->world()) return Ok();
  return Error{Code::kInvalid, fmt::format("no rank {} in a world of {}", rank, communicator_->world())};
}

Status Group::CheckPeer(int rank) const {
  RM_TRY(CheckRank(rank));
  if (rank != communicator_->rank()) return Ok();
  return Error{Code::kInvalid, fmt::format("rank {} is this process: a transfer needs another one", rank)};
}

}  // namespace ringmaster::library
