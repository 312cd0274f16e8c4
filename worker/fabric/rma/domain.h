// SPDX-License-Identifier: Apache-2.0

// RMA collectives of one trainer: the memory that peers may read, and the communicators of successive
// generations, each created over a communicator of the host. The entry of rma/. Used for GPUs whose gradients
// NCCL does not carry: because UCX was requested, NCCL is missing, or workers share a GPU.
//
// A communicator exists only if every member can read from every other member without help of their hosts:
// GPUs of one machine with peer access (cuda_ipc), or RDMA devices that reach GPU memory on both sides
// (GPUDirect RDMA). Each member tries that with every peer; if one fails, all go without.
//
// Not thread-safe. REQUIRES: the GPU is bound to the calling thread.
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
  // The memory is GPU memory. If false, any transport of UCX is accepted.
  bool cuda = true;
  std::string host_id;  // equal for members whose GPUs may have peer access
  Duration timeout = seconds(60);
};

class Domain {
 public:
  // Without a suitable UCX the Domain is not supported(), and Connect reports that to the other members.
  static std::unique_ptr<Domain> Create(const DomainOptions& options);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  // Registers memory for collectives, including the scratch memory. REQUIRES: it outlives the Domain; no
  // Connect before.
  void Register(std::span<std::byte> memory);
  bool supported() const { return unsupported_reason_.empty(); }
  // Marks this member as unable to take part.
  void Disable(const std::string& why) { unsupported_reason_ = why; }

  // Creates the communicator of a generation, with the rank, world and generation of `host`. Returns nullptr,
  // at all members, when RMA is not available for this group. `work` and `scratch`: see communicator.h.
  // REQUIRES: every member calls it with its communicator of the host; the older communicator is destroyed.
  // Errors: kCancelled soon after *cancel becomes true.
  Result<std::unique_ptr<AsyncCommunicator>> Connect(Communicator* host, const std::atomic<bool>* cancel,
                                                     DeviceWork* work, std::span<std::byte> scratch);

  // Returns what carries the last communicator's gets: "ucx:cuda_ipc", "ucx:rc_mlx5"; empty: there was none.
  const std::string& transport() const { return transport_; }

 private:
  explicit Domain(const DomainOptions& options) : options_(options) {}
  std::unique_ptr<Group> NewGroup(Communicator* host, const std::atomic<bool>* cancel, PeerInfo* own) const;
  // Returns what carries gets from all peers. Errors: kUnavailable when a peer cannot be reached.
  Result<std::string> ConnectGroup(Group* group, std::vector<PeerInfo> infos) const;
  // Returns whether `why_not` is empty at all members. A collective of `host`.
  Result<bool> AllAgree(Communicator* host, const std::string& why_not);
  void LogOnce(const std::string& why);

  const DomainOptions options_;
  Memory memory_;
  std::string unsupported_reason_;
  std::string transport_;
  std::string last_logged_;
};

}  // namespace ringmaster::fabric::rma
