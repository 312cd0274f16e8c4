// SPDX-License-Identifier: Apache-2.0

// The fabric: shareable memory and the communicators of successive generations. One Fabric per trainer
// process.
//
// Memory rule that makes dead generations harmless: nobody ever writes into a peer's memory. Same-host peers
// map each other's arenas read-only and pull; on the network, the receiver itself takes data out of UCX's
// receive buffers, after it has checked the generation. A process that was stopped, evicted and woken up
// again can therefore read garbage but never cause any; and it finds out before it returns from the
// operation, because generations are checked again after every read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric {

struct FabricOptions {
  // auto: shm when all members are on one host, else ucx | shm: an error when they are not | ucx: always
  std::string transport = "auto";
  Duration timeout = seconds(60);  // an operation without progress for this long fails with kDeadlineExceeded
  std::string host_id;             // empty: boot id + pid namespace of this machine; tests set it
};

// A membership as the fabric needs it: rank = index.
struct Group {
  uint64_t generation = 0;
  int rank = 0;
  std::vector<std::string> addresses;  // Fabric::Address() of each member
};

// In the error of a Connect when no transport leads to a peer: it is gone, or was never to be reached.
inline constexpr std::string_view kUnreachable = "no transport leads to a peer";

class Fabric {
 public:
  static Result<std::unique_ptr<Fabric>> Create(const FabricOptions& options);
  virtual ~Fabric() = default;

  // Zeroed, 4096-aligned memory that same-host peers can map, every page touched (no SIGBUS later); freed
  // with the Fabric. kExhausted with the arithmetic when it cannot be had. Collectives on it need no copy; on
  // other memory they are staged.
  virtual Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) = 0;

  // Printable blob for Join. All allocations must have been made before.
  virtual std::string Address() const = 0;

  // Forms the communicator of a generation. Every member calls it with an equal Group (but for the rank). It
  // may block until all have; fails with kCancelled on Abort(generation or newer), with kUnavailable when a
  // peer is gone. Peers that stay keep their mappings and endpoints. The older communicator must have been
  // destroyed.
  virtual Result<std::unique_ptr<Communicator>> Connect(const Group& group) = 0;

  // From any thread: every operation of `generation` or older, and Connect, ends with kCancelled promptly
  // (also those not yet begun). Never blocks.
  virtual void Abort(uint64_t generation) = 0;

  // "shm", "ucx:tcp", "ucx:rc_mlx5": what really carries data in the current communicator; "none" when there
  // is nobody to talk to.
  virtual std::string TransportName() const = 0;
};

}  // namespace ringmaster::fabric
