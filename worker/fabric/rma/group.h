// SPDX-License-Identifier: Apache-2.0

// The members of one generation, who read each other's memory: they show each other where their data lies,
// pull, and tell when they are done. The collectives over that are in communicator.h.
//
// The memory rule of the fabric holds here too (fabric.h): nobody writes into a peer's memory. Each
// generation has a UCX worker and connections of its own, so that nothing of an older one can come in its
// way: UCX pairs the connections between two workers by counting them, and a member that was lost may have
// made one more.
//
// Thread rule: one thread at a time. After a failure every call fails the same way, and no pull is under way
// any more. No call hangs: kCancelled soon after *cancel, kUnavailable when a peer that is waited for is
// gone, kDeadlineExceeded without progress in time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/rma/peer_info.h"
#include "worker/fabric/ucx/context.h"
#include "worker/fabric/ucx/worker.h"

namespace ringmaster::fabric::rma {

// This process's memory as UCX knows it; outlives its groups.
struct Memory {
  std::unique_ptr<ucx::Context> context;
  ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
  std::vector<ucx::RegisteredMemory> regions;

  // The region that holds all of it; nullopt when none does.
  std::optional<size_t> Find(std::span<const std::byte> data) const;
};

class Group {
 public:
  struct Options {
    int rank = 0;
    int world = 1;
    uint64_t generation = 0;
    const std::atomic<bool>* cancel = nullptr;
    Duration timeout = seconds(60);
  };
  static Result<std::unique_ptr<Group>> Create(const Memory* memory, const Options& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return options_.rank; }
  int world() const { return options_.world; }
  uint64_t generation() const { return options_.generation; }
  // For the own PeerInfo.
  const std::string& address() const { return worker_->address(); }

  // Connects to all. Fails when UCX has no way to one of them.
  Status Connect(std::vector<PeerInfo> infos);
  // The lanes to a peer.
  std::string Transports(int peer) const { return peers_[static_cast<size_t>(peer)].endpoint->Transports(); }

  // Everybody shows `scratch` and reads a little and much of that of all others. The first rank from which
  // that cannot be done, though it lives; the group is then of no use.
  Result<std::optional<int>> ProbePeers(std::span<std::byte> scratch);

  // Shows `own` to all and waits until all others have come to the same point and exposed theirs; it must lie
  // in a region, or be empty. What they show must be as long as ours.
  Status Expose(std::span<const std::byte> own);
  // Begins to read what lies `offset` behind the start of what `peer` has exposed last, or sends_announced.
  Status Get(int peer, size_t offset, std::span<std::byte> to);
  // All that was begun is here.
  Status WaitForGets();

  // Between two alone: Send returns when the peer has pulled it and called Acknowledge.
  Status Send(int peer, std::span<const std::byte> data);
  Status AwaitSend(int peer, size_t bytes);
  Status Acknowledge(int peer);

 private:
  // Where a member's data lies.
  struct DataLocation {
    uint32_t region = 0;
    uint32_t empty = 1;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Peer {
    std::unique_ptr<ucx::Endpoint> endpoint;  // nullptr at our own rank
    PeerInfo info;
    std::map<uint32_t, ucx::RemoteKey> keys;               // by region, when first needed; before endpoint
    uint64_t exposures = 0;                                // points it has come to
    DataLocation exposed[2];                               // at the last two: it may be one ahead of us
    uint64_t sends_announced = 0, sends_acknowledged = 0;  // by it
    DataLocation send_location;
    uint64_t sent = 0, acknowledged = 0;
    DataLocation current;  // what Get reads from
  };

  Group(const Memory* memory, const Options& options);
  void OnMessage(const ucx::Header& header, std::span<const std::byte> data);
  Result<DataLocation> Locate(std::span<const std::byte> data) const;
  void SendControl(Peer& peer, ucx::Kind kind, uint64_t sequence, const DataLocation& location);
  Result<const ucx::RemoteKey*> RemoteKeyOf(Peer& peer, uint32_t region);
  // Makes progress until `done`; `needs(q)`: something of rank q is waited for.
  Status WaitUntil(const std::function<bool()>& done, const std::function<bool(int)>& needs);
  bool AllSent() const;
  Status Check() const;
  Error Fail(Error error);

  const Memory* const memory_;
  const Options options_;
  std::unique_ptr<ucx::Worker> worker_;
  std::vector<Peer> peers_;
  uint64_t exposures_ = 0;
  uint64_t messages_ = 0;  // the worker's, as of moved_
  Time moved_ = {};
  std::optional<Error> news_;  // what a message brought that makes no sense
  std::optional<Error> failure_;
};

}  // namespace ringmaster::fabric::rma
