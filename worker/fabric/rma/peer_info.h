// SPDX-License-Identifier: Apache-2.0

// What members of a generation tell each other before they read each other's memory, over the communicator of
// the host. A value type, its bytes, and the words for what carries reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric::rma {

struct MemoryRegionInfo {
  uint64_t address = 0;  // the owner's
  uint64_t bytes = 0;
  std::string key;
  bool operator==(const MemoryRegionInfo&) const = default;
};

// What members must have in common to understand each other; counts up when what they tell each other, or the
// order in which they do, changes.
inline constexpr uint32_t kProtocol = 1;

struct PeerInfo {
  std::string unsupported_reason;  // why this member cannot; empty when it can
  std::string host_id;             // members with equal ones see each other's GPUs
  std::string worker;              // address of its UCX worker
  std::vector<MemoryRegionInfo> regions;
  uint64_t scratch_bytes = 0;  // equal at all: how sums are cut depends on it
  uint32_t protocol = kProtocol;
  bool operator==(const PeerInfo&) const = default;
};

std::string Encode(const PeerInfo& info);
Result<PeerInfo> Decode(std::string_view bytes);

// Everybody's, by rank. A collective of `host`.
Result<std::vector<PeerInfo>> ExchangePeerInfo(Communicator* host, const PeerInfo& own);

// Why members who info that cannot read each other; empty when they can.
std::string WhyIncompatible(const std::vector<PeerInfo>& infos);

// Of names joined by "+".
std::set<std::string> SplitNames(std::string_view joined);

// What can carry memory of GPUs, of the lanes that UCX has chosen to a peer ("cuda_ipc+tcp"): between GPUs of
// one machine, or by RDMA. Empty: none.
std::string GpuTransports(bool one_host, std::string_view lanes);

}  // namespace ringmaster::fabric::rma
