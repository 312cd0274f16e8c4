// SPDX-License-Identifier: Apache-2.0

// The network side of one process: its UCX worker and the endpoints to its peers. An endpoint lives across
// generations until it fails, also while its peer is not a member, since the peer may return. The entry of
// ucx/.
//
// When a generation ends, messages may still wait for a slow peer to read: its end among them. A thread makes
// progress until they have left or the next Connect, since the owner may be busy with something else. No
// connection to a live peer is closed.
//
// Not thread-safe, except Abort and aborted. The Transport and Connect share one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/address.h"
#include "worker/fabric/transport.h"
#include "worker/fabric/ucx/context.h"
#include "worker/fabric/ucx/wire.h"
#include "worker/fabric/ucx/worker.h"

namespace ringmaster::fabric::ucx {

class UcxTransport;

class Domain {
 public:
  static Result<std::unique_ptr<Domain>> Create(const std::string& uuid, Duration timeout,
                                                std::function<void()> on_wait = {});
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  const std::string& address() const { return worker_->address(); }

  // Returns when all members of the generation are connected. Errors: kForbidden when the loaded UCX has a
  // fault by which it never connects over an RDMA port of this machine. REQUIRES: the older Transport is
  // destroyed.
  Result<std::unique_ptr<Transport>> Connect(uint64_t generation, int rank,
                                             const std::vector<MemberAddress>& members);
  // Returns the ranks to which the last Connect found no transport over seconds, ascending.
  const std::vector<int32_t>& unreachable() const { return unreachable_; }
  void Abort(uint64_t generation);

  // Returns the UCX transports of the endpoints to the current members: "tcp", "rc_mlx5".
  std::string Transports() const;

  // --- for UcxTransport ---
  Worker& worker() { return *worker_; }
  Duration timeout() const { return timeout_; }
  void ShowWait() const {
    if (on_wait_) on_wait_();
  }
  uint64_t aborted() const { return aborted_.load(std::memory_order_acquire); }
  void Attach(UcxTransport* transport) { transport_ = attached_ = transport; }
  // The Transport is destroyed.
  void Detach();
  // Delivers no more messages to the Transport, which has failed, and lets those leave that it has sent.
  void Drain();
  // Makes progress; sleeps when there was none for a while. `idle_since` belongs to the caller, who starts
  // with kNever.
  void Step(Time& idle_since);
  // Returns when a message last arrived or left, other than announcements of waits.
  Time last_progress() const { return last_progress_; }

 private:
  struct Peer {
    std::unique_ptr<Endpoint> endpoint;
    uint64_t hello = 0;     // newest generation for which the peer sent a hello
    uint64_t welcome = 0;   // newest generation for which the peer confirmed our hello
    uint64_t welcomed = 0;  // newest generation for which we confirmed the peer's hello
    bool member = false;    // of the current generation
  };

  Domain(std::string uuid, Duration timeout, std::function<void()> on_wait)
      : uuid_(std::move(uuid)), timeout_(timeout), on_wait_(std::move(on_wait)) {}
  void OnMessage(const Header& header, std::span<const std::byte> data);
  void SendWelcomes();
  void SendStop(Peer& peer, uint64_t generation);
  Status WaitForMembers(UcxTransport& transport, const std::vector<MemberAddress>& members);
  Status SendHello(Peer& peer, const MemberAddress& member, uint64_t generation, int rank);
  bool Drained();
  void StopDraining();

  const std::string uuid_;
  const Duration timeout_;
  const std::function<void()> on_wait_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Worker> worker_;
  std::map<std::string, Peer> peers_;  // by uuid
  bool welcomes_due_ = false;          // hellos to confirm
  std::vector<int32_t> unreachable_;
  std::optional<std::string> refusal_;  // why this UCX cannot connect to any peer
  UcxTransport* attached_ = nullptr;    // exists
  UcxTransport* transport_ = nullptr;   // gets messages
  uint64_t generation_ = 0;
  Duration spin_ = {};     // idle time before a sleep
  uint64_t messages_ = 0;  // the worker's count at last_progress_
  Time last_progress_ = {};
  std::atomic<uint64_t> aborted_{0};
  std::atomic<bool> stop_draining_{false};
  std::thread drainer_;  // while it runs, it alone uses worker_ and peers_
};

}  // namespace ringmaster::fabric::ucx
