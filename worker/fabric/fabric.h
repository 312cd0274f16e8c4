// SPDX-License-Identifier: Apache-2.0

// worker/fabric: collective communication that survives the loss of members. Start here: Fabric creates the
// Communicator of each generation, communicator.h lists the collectives. The library depends on base/ only.
//
//   fabric.h         Fabric: shareable memory and the communicators of successive generations
//   communicator.h   the collectives; async_communicator.h adds sums that complete later
//   transport.h      messages between ranks; algorithms.h implements the collectives over them
//   shm/             collectives of one host: members read each other's shared memory
//   ucx/             Transport over networks, and the UCX worker that rma/ uses too
//   rma/             collectives on GPU memory by RMA gets (cuda_ipc, GPUDirect RDMA)
//   nccl/            collectives on GPU memory by NCCL, with a watchdog
//   loopback/        a deterministic network inside one process, for tests
//
// A generation is one membership of the job: a number that only grows, and a list of members. Memory rule
// that makes dead generations harmless: no process ever writes into a peer's memory. Same-host peers map each
// other's arenas read-only and read from them; on the network, the receiver copies data out of UCX's receive
// buffers after it has checked the generation. A process that was stopped, evicted and resumed can therefore
// read garbage, but it cannot cause any, and it notices before it returns from the operation, because
// generations are checked again after every read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric {

class Fabric;

// Aborts generations from threads that do not own the Fabric: before it exists, while it is destroyed, and
// afterwards. Thread-safe.
class Aborter {
 public:
  // As Fabric::Abort. A Fabric that is created later starts with the newest abort.
  void Abort(uint64_t generation);

  // --- for Fabric ---
  void Attach(Fabric* fabric);
  // Waits for an Abort that is under way; none reaches the Fabric afterwards.
  void Detach();

 private:
  Mutex mutex_;
  Fabric* fabric_ RM_GUARDED_BY(mutex_) = nullptr;
  uint64_t newest_ RM_GUARDED_BY(mutex_) = 0;
};

struct FabricOptions {
  // auto: shm when all members are on one host, else ucx | shm: an error when they are not | ucx: always
  std::string transport = "auto";
  // Connect fails with kDeadlineExceeded after this time; another operation when all members have waited in
  // one for this long and no data has arrived, or when a connection has carried no data for this long. A
  // member that is in no operation may take as long as it likes (stall.h).
  Duration timeout = seconds(60);
  std::string host_id;  // empty: boot id and pid namespace of this machine; tests set it
  // Called several times per timeout by a thread that waits for peers, to show that it is alive. May be
  // empty.
  std::function<void()> on_wait = {};
  std::shared_ptr<Aborter> aborter = {};  // of one Fabric at a time; may be null
};

// The members of one generation. The index of an address is the rank of its member.
struct Membership {
  uint64_t generation = 0;
  int rank = 0;                        // of this process
  std::vector<std::string> addresses;  // Fabric::Address() of each member
};

// The entry point: one Fabric per trainer process.
//
// Not thread-safe, except Abort; a thread that may call it while the Fabric is destroyed uses an Aborter. A
// Fabric outlives its communicators.
class Fabric {
 public:
  // Errors: kInvalid for an unknown transport, kUnavailable when UCX does not start.
  static Result<std::unique_ptr<Fabric>> Create(const FabricOptions& options);
  virtual ~Fabric() = default;

  // Returns zeroed, 4096-aligned memory that same-host peers can map. Every page is touched, so that no
  // SIGBUS follows later. The Fabric frees it. Collectives on this memory need no copy; other memory is
  // staged.
  // Errors: kExhausted, with the requested and the available bytes, of the machine or of a control group.
  virtual Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) = 0;

  // Returns the address of this member, printable, for Membership::addresses.
  // REQUIRES: no Allocate follows.
  virtual std::string Address() const = 0;

  // Creates the communicator of a generation. May block until every member has called it. Peers that stay
  // keep their mappings and endpoints.
  // REQUIRES: every member passes an equal Membership (except for the rank); the communicator of the previous
  // generation is destroyed.
  // Errors: kCancelled after Abort of this or a newer generation, kUnavailable when a peer is gone.
  virtual Result<std::unique_ptr<Communicator>> Connect(const Membership& membership) = 0;

  // Returns the ranks to which the last Connect found no transport, ascending. It has tried for seconds: the
  // devices of the two sides have none in common, or this host has no route.
  virtual std::vector<int32_t> Unreachable() const = 0;

  // Ends every operation of `generation` and older, including Connect and operations that have not started,
  // with kCancelled. Thread-safe. Never blocks.
  virtual void Abort(uint64_t generation) = 0;

  // Returns what carries data in the current communicator: "shm", "ucx:tcp", "ucx:rc_mlx5"; "none" in a
  // world of one.
  virtual std::string TransportName() const = 0;
};

}  // namespace ringmaster::fabric
