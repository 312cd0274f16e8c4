// SPDX-License-Identifier: Apache-2.0

// NCCL within one trainer: the library, the memory it is to know, and the communicators of successive
// generations, each of which is made over a communicator of the host (which carries the unique id). A
// generation that only lost members is made by shrinking the older one, one that only got new ones, behind
// the others, by growing it, where the library can do that and all have kept theirs (a revoked one does not
// grow); else, and when that fails for one of them, from nothing.
//
// Thread rule: one thread at a time, to which the GPU is bound; TransportName from any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
  std::string gpu;      // UUID of this process's GPU
  std::string bus;      // where that is, by PCI; instances of one GPU (MIG) are at one place
  std::string host_id;  // equal where NCCL sees one machine
};

class Domain {
 public:
  // Turns NCCL's log on (debug_log.h): call it before NCCL's first use in this process.
  // `api` without functions (version 0) where there is no NCCL: then Connect tells the others so.
  static Result<std::unique_ptr<Domain>> Create(const Api& api, DomainOptions options);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  // Memory of the device that operations will be on, which outlives the Domain. Before the first Connect.
  // `own`: it is of Api::allocate. Where all of it is, at all members, NCCL is told of it, and then reads and
  // writes it without copies where it can.
  void Register(std::span<std::byte> memory, bool own);

  // Every member calls it with its communicator of the host, whose rank, world and generation the new one
  // has. The older DeviceCommunicator must have been destroyed. nullptr, at all of them, when NCCL is not to
  // be had for this group: somebody has none, or two share a GPU. It and its communicator end with
  // kCancelled, soon, when *cancel becomes true. kInvalid when the members' versions differ.
  Result<std::unique_ptr<DeviceCommunicator>> Connect(Communicator* host, const std::atomic<bool>* cancel);

  // "nccl:p2p+ib-gdr", by all that NCCL has said so far; "none" where it is not used. transport_name.h
  std::string TransportName();
  // When that names sockets: why, and what to do.
  std::string WhySockets();

 private:
  Domain(const Api& api, DomainOptions options, DebugLog log);
  Result<UniqueId> BroadcastUniqueId(Communicator* host, const std::function<int(UniqueId*)>& make);
  Result<std::shared_ptr<ManagedCommunicator>> InitFromScratch(Communicator* host,
                                                               const std::atomic<bool>* cancel);
  // nullptr, at all members, when it did not work for one of them. `parent` is nullptr at newcomers.
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
  bool all_nccl_memory_ = true;  // all of it is NCCL's
  bool growing_failed_ = false;  // once, and so probably always

  std::mutex mutex_;  // for what follows
  DebugLog log_;
  NetFacts facts_;
  bool in_use_ = false;
  bool one_host_ = true;
  std::shared_ptr<ManagedCommunicator> current_;  // of generation_; nullptr: none
  uint64_t generation_ = 0;
  int rank_ = 0;
  int world_ = 1;
};

}  // namespace ringmaster::fabric::nccl
