// SPDX-License-Identifier: Apache-2.0

// A rank's endpoint of the in-process network. Not thread-safe: used by that rank's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/fabric/loopback/domain.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric::loopback {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(Domain& domain, int rank) : domain_(domain), rank_(rank) {}
  ~LoopbackTransport() override;

  int rank() const override { return rank_; }
  int world() const override { return domain_.options_.world; }
  uint64_t generation() const override { return 1; }
  size_t segment_bytes() const override { return domain_.options_.segment_bytes; }

  Status Send(int peer, Tag tag, std::span<const std::byte> data) override;
  Status Post(int peer, Tag tag, const PostedReceive& receive) override;
  Status Wait(int peer) override;
  Status WaitForSends(int peer, uint64_t behind) override;
  Status Flush() override;

 private:
  Domain& domain_;
  const int rank_;
};

}  // namespace ringmaster::fabric::loopback
