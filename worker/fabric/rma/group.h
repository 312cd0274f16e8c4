// SPDX-License-Identifier: Apache-2.0

// The members of one generation, which read each other's memory: they expose where their data is, get from
// each other, and report when they are done. communicator.h builds the collectives on it.
//
// The memory rule of the fabric holds here too (fabric.h): no process writes into a peer's memory. Each
// generation has its own UCX worker and connections, so that no older generation can interfere: UCX pairs the
// connections between two workers by counting them, and a lost member may have created one more.
//
// Not thread-safe. After a failure every call fails with the same error, and no get is in flight. No call
// hangs. Errors: kCancelled soon after *cancel becomes true, kUnavailable when an awaited peer is gone,
// kDeadlineExceeded when a wait cannot end (stall.h).
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
#include "worker/fabric/operation.h"
#include "worker/fabric/rma/peer_info.h"
#include "worker/fabric/stall.h"
#include "worker/fabric/ucx/context.h"
#include "worker/fabric/ucx/tcp_health.h"
#include "worker/fabric/ucx/worker.h"

namespace ringmaster::fabric::rma {

// The memory of this process that is registered with UCX. REQUIRES: outlives its groups.
struct Memory {
  std::unique_ptr<ucx::Context> context;
  ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
  std::vector<ucx::RegisteredMemory> regions;

  // Returns the index of the region that contains `data`; nullopt when none does.
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
    std::function<void()> on_wait = {};  // FabricOptions::on_wait
  };
  static Result<std::unique_ptr<Group>> Create(const Memory* memory, const Options& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return options_.rank; }
  int world() const { return options_.world; }
  uint64_t generation() const { return options_.generation; }
  // Returns the address of the UCX worker, for the own PeerInfo.
  const std::string& address() const { return worker_->address(); }

  // Connects to all members. Errors: kUnavailable when UCX cannot reach one of them.
  Status Connect(std::vector<PeerInfo> infos);
  // Returns the UCX transports of the connection to a peer.
  std::string Transports(int peer) const { return peers_[static_cast<size_t>(peer)].endpoint->Transports(); }

  // Exposes `scratch` and gets a small and a large piece from every peer. Returns the first rank that is
  // alive but cannot be read; the group is then unusable.
  Result<std::optional<int>> ProbePeers(std::span<std::byte> scratch);

  // Exposes `own` to all and waits until all others have made the same call; so Expose({}) is a barrier.
  // `operation`: what this member calls; kInternal when another member calls something else. Its `bytes` are
  // those of `own`.
  // REQUIRES: `own` is in a registered region, or empty; all members expose the same number of bytes.
  Status Expose(std::span<const std::byte> own, const Operation& operation);
  // Starts to read the peer's data at `offset` of what it exposed, or sent, last.
  Status Get(int peer, size_t offset, std::span<std::byte> to);
  // Waits until all started gets are complete.
  Status WaitForGets();

  // Transfer between two ranks. Send returns when the receiver has called Acknowledge; the receiver calls
  // AwaitSend, Get, WaitForGets and Acknowledge.
  Status Send(int peer, std::span<const std::byte> data);
  Status AwaitSend(int peer, size_t bytes);
  Status Acknowledge(int peer);

 private:
  // Where a member's data is; sent as bytes.
  struct DataLocation {
    uint32_t region = 0;
    uint32_t empty = 1;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Peer {
    std::unique_ptr<ucx::Endpoint> endpoint;  // nullptr at the own rank
    PeerInfo info;
    std::map<uint32_t, ucx::RemoteKey> keys;  // by region, unpacked on first use; destroyed before endpoint
    uint64_t exposures = 0;                   // received from the peer
    DataLocation exposed[2];                  // the last two, by parity: the peer may be one ahead
    Operation operations[2];                  // for which it exposed them
    uint64_t sends_announced = 0;             // by the peer
    uint64_t sends_acknowledged = 0;          // by the peer
    DataLocation send_location;               // of the last announced send
    uint64_t sent = 0;                        // to the peer
    uint64_t acknowledged = 0;                // to the peer
    DataLocation current;                     // what Get reads from
  };

  Group(const Memory* memory, const Options& options);
  void OnMessage(const ucx::Header& header, std::span<const std::byte> data);
  Result<DataLocation> Locate(std::span<const std::byte> data) const;
  void SendControl(Peer& peer, ucx::Kind kind, uint64_t sequence, const DataLocation& location,
                   const Operation& operation = {});
  Result<const ucx::RemoteKey*> RemoteKeyOf(Peer& peer, uint32_t region);
  // Makes progress until `done`. `needs(q)`: whether `done` still depends on rank q.
  Status WaitUntil(const std::function<bool()>& done, const std::function<bool(int)>& needs);
  // Announces the wait to all peers when that is due, and fails when the wait cannot end.
  Status CheckStall(Time now);
  bool AllSent() const;
  Status Check() const;
  Error Fail(Error error);

  const Memory* const memory_;
  const Options options_;
  std::unique_ptr<ucx::Worker> worker_;
  StallDetector stall_;
  const ucx::TcpHealth tcp_health_{{}};  // no connection is older than the generation
  std::vector<Peer> peers_;
  uint64_t exposures_ = 0;
  uint64_t messages_ = 0;  // the worker's count at last_progress_
  Time last_progress_ = {};
  std::optional<Error> pending_error_;  // from a message; WaitUntil makes it the failure
  std::optional<Error> failure_;
};

}  // namespace ringmaster::fabric::rma
