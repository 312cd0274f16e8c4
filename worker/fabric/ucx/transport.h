// SPDX-License-Identifier: Apache-2.0

// The messages of one generation over UCX. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/fabric/channel.h"
#include "worker/fabric/stall.h"
#include "worker/fabric/transport.h"
#include "worker/fabric/ucx/domain.h"
#include "worker/fabric/ucx/tcp_health.h"
#include "worker/fabric/ucx/wire.h"

namespace ringmaster::fabric::ucx {

class UcxTransport final : public Transport {
 public:
  UcxTransport(Domain& domain, uint64_t generation, int rank, size_t world);
  ~UcxTransport() override;

  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(endpoints_.size()); }
  uint64_t generation() const override { return generation_; }
  size_t segment_bytes() const override { return kSegmentBytes; }

  Status Send(int peer, Tag tag, std::span<const std::byte> data) override;
  Status Post(int peer, Tag tag, const PostedReceive& receive) override;
  Status Wait(int peer) override;
  Status WaitForSends(int peer, uint64_t behind) override;
  Status Flush() override;
  void ShowWait() const override { domain_.ShowWait(); }

  // --- for the domain ---
  void SetEndpoint(int peer, Endpoint* endpoint) { endpoints_[peer] = endpoint; }
  // Handles a message of this generation; called while the worker makes progress.
  void OnMessage(const Header& header, std::span<const std::byte> data);
  // The peer of this endpoint has entered a newer generation: it sends nothing more in this one. An operation
  // that needs no more of it may still end well.
  void OnNewerGeneration(const Endpoint* endpoint, uint64_t generation);
  Status Check();
  // Records the first failure, sends kStop to the peers and returns the recorded error. Every later operation
  // fails with it.
  Error Fail(Error error);

 private:
  Header MakeHeader(Kind kind) const;
  // Sends the queued messages that the window permits, and the credit that is due.
  void Pump(int peer);
  Status CheckPeer(int peer);
  template <class Done>
  Status WaitUntil(int peer, const Done& done);
  // Announces the wait to all peers when that is due, and fails when the wait cannot end.
  Status CheckStall();

  Domain& domain_;
  const TcpHealth tcp_health_;
  const uint64_t generation_;
  const int rank_;
  std::vector<Endpoint*> endpoints_;  // nullptr at the own rank
  std::vector<Channel> channels_;
  std::vector<uint64_t> waited_;
  std::vector<uint64_t> newer_;  // by rank: the newer generation that the peer has entered; 0: none
  StallDetector stall_;
  std::optional<Error> pending_error_;  // from a message; Check makes it the failure
  std::optional<Error> failure_;
};

}  // namespace ringmaster::fabric::ucx
