// SPDX-License-Identifier: Apache-2.0

// NCCL within one trainer: the library, the memory that it registers, and the communicators of successive
// generations, each created over a communicator of the host, which carries the unique id. The entry of nccl/.
//
// If members were only lost, the new communicator is created by shrinking the older one. If members were only
// added, with ranks after all others, it is created by growing the older one. Both need a library that can do
// that and an older communicator at every old member; a revoked communicator cannot grow. In all other cases,
// and when shrinking or growing fails at one member, all create a new communicator from scratch.
//
// Not thread-safe, except TransportName and WhySockets. REQUIRES: the GPU is bound to the calling thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/nccl/api.h"
#include "worker/fabric/nccl/communicator.h"
#include "worker/fabric/nccl/debug_log.h"
#include "worker/fabric/nccl/managed_communicator.h"
#include "worker/fabric/nccl/net.h"
#include "worker/fabric/nccl/plan.h"

namespace ringmaster::fabric::nccl {

struct DomainOptions {
  ManagedOptions communicator;
  std::string gpu;          // UUID of this process's GPU
  std::string bus;          // PCI address of that GPU; all instances (MIG) of one GPU share it
  std::string host_id;      // equal where NCCL sees one machine
  bool shares_gpu = false;  // the user set NCCL_MULTI_RANK_GPU_ENABLE
};

class Domain {
 public:
  // Turns on NCCL's log (debug_log.h). REQUIRES: this process has not used NCCL yet.
  // Without NCCL, `api` has no functions (version 0): Connect then reports that to the other members.
  static Result<std::unique_ptr<Domain>> Create(const Api& api, DomainOptions options);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  // Registers device memory for operations. `from_nccl`: Api::allocate returned it. If that holds for all
  // memory at all members, NCCL registers it, and then reads and writes it without copies where possible.
  // REQUIRES: the memory outlives the Domain; no Connect before.
  void Register(std::span<std::byte> memory, bool from_nccl);

  // Creates the communicator of a generation, with the rank, world and generation of `host`. Returns nullptr,
  // at all members, when NCCL is not available for this group: a member has no NCCL, or two share a GPU.
  // REQUIRES: every member calls it with its communicator of the host; the older DeviceCommunicator is
  // destroyed.
  // Errors: kInvalid when the members' NCCL versions differ; kCancelled soon after *cancel becomes true, also
  // in operations of the communicator.
  Result<std::unique_ptr<DeviceCommunicator>> Connect(Communicator* host, const std::atomic<bool>* cancel);

  // Returns what carries data, by what NCCL has logged so far: "nccl:p2p+ib-gdr"; "none" when it is not used.
  std::string TransportName();
  // Returns why the transport may be sockets, and what to do.
  std::string WhySockets();

 private:
  Domain(const Api& api, DomainOptions options, DebugLog log);
  Result<UniqueId> BroadcastUniqueId(Communicator* host, const std::function<int(UniqueId*)>& make);
  Result<std::shared_ptr<ManagedCommunicator>> InitFromScratch(Communicator* host,
                                                               const std::atomic<bool>* cancel);
  // Shrinks or grows `parent`, which is nullptr at new members. Returns nullptr, at all members, when that
  // fails at one of them.
  Result<std::shared_ptr<ManagedCommunicator>> DeriveFromParent(Communicator* host, const Plan& plan,
                                                                ManagedCommunicator* parent,
                                                                const std::atomic<bool>* cancel);
  Status Grow(Communicator* host, ManagedCommunicator* parent, ManagedCommunicator* managed);
  std::shared_ptr<ManagedCommunicator> NewManaged(const std::atomic<bool>* cancel);
  void RegisterAll(ManagedCommunicator* managed);
  void ReadLog();

  const Api api_;
  const DomainOptions options_;
  std::vector<std::span<std::byte>> memory_;
  bool all_nccl_memory_ = true;  // NCCL allocated all of memory_
  bool growing_failed_ = false;  // at this process once; it is not tried again
  uint64_t generation_ = 0;      // of current_, as are rank_ and world_
  int rank_ = 0;
  int world_ = 1;

  Mutex mutex_;
  DebugLog log_ RM_GUARDED_BY(mutex_);
  NetFacts facts_ RM_GUARDED_BY(mutex_);
  bool in_use_ RM_GUARDED_BY(mutex_) = false;
  bool one_host_ RM_GUARDED_BY(mutex_) = true;
  std::shared_ptr<ManagedCommunicator> current_ RM_GUARDED_BY(mutex_);  // nullptr: none
};

}  // namespace ringmaster::fabric::nccl
