// SPDX-License-Identifier: Apache-2.0

// Pulls within one trainer: the memory that peers may read, and the groups of successive generations, each of
// which is made over a communicator of the host. For GPUs whose gradients NCCL does not carry: because UCX
// was asked for, because it is missing, or because workers share a GPU.
//
// There is a group only where every member can read from every other without help of their hosts: GPUs of one
// machine that see each other (cuda_ipc), or RDMA devices that reach the GPUs' memory on both sides
// (GPUDirect). Each tries that with every peer; when one cannot, all go without.
//
// Thread rule: one thread at a time, to which the GPU is bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/rma/communicator.h"
#include "worker/fabric/rma/group.h"
#include "worker/fabric/rma/peer_info.h"

namespace ringmaster::fabric::rma {

struct DomainOptions {
  // Whether the memory is a GPU's. Else any lane will do.
  bool cuda = true;
  std::string host_id;  // equal where members see each other's GPUs
  Duration timeout = seconds(60);
};

class Domain {
 public:
  // Without a UCX that can do it the others are told so at every Connect.
  static std::unique_ptr<Domain> Create(const DomainOptions& options);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  // Memory that collectives are to work on, `scratch` included; it outlives the Domain. Before the first
  // Connect.
  void Register(std::span<std::byte> memory);
  bool supported() const { return unsupported_reason_.empty(); }
  // This member cannot, for that reason.
  void Disable(const std::string& why) { unsupported_reason_ = why; }

  // Every member calls it with its communicator of the host, whose rank, world and generation the new one
  // has. The older one must have been destroyed. nullptr, at all of them, when pulls are not to be had for
  // this group. Ends with kCancelled, soon, when *cancel becomes true. `work` and `scratch` as in
  // communicator.h.
  Result<std::unique_ptr<AsyncCommunicator>> Connect(Communicator* host, const std::atomic<bool>* cancel,
                                                     DeviceWork* work, std::span<std::byte> scratch);

  // "ucx:cuda_ipc", "ucx:rc_mlx5" of the last group; empty when there was none.
  const std::string& transport() const { return transport_; }

 private:
  explicit Domain(const DomainOptions& options) : options_(options) {}
  std::unique_ptr<Group> NewGroup(Communicator* host, const std::atomic<bool>* cancel, PeerInfo* own) const;
  // What carries reads from all others, or why there is no way to one.
  Result<std::string> ConnectGroup(Group* group, std::vector<PeerInfo> infos) const;
  // Whether `why_not` is empty at all members.
  Result<bool> AllAgree(Communicator* host, const std::string& why_not);
  void LogOnce(const std::string& why);

  const DomainOptions options_;
  Memory memory_;
  std::string unsupported_reason_;
  std::string transport_;
  std::string last_logged_;
};

}  // namespace ringmaster::fabric::rma
