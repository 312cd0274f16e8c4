// SPDX-License-Identifier: Apache-2.0

// What members of a generation need to know about each other before they read each other's memory. Value
// types, their encoding, and their exchange over the communicator of the host.
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
  uint64_t address = 0;  // in the owner's address space
  uint64_t bytes = 0;
  std::string key;
  bool operator==(const MemoryRegionInfo&) const = default;
};

// Grows when the PeerInfo, or the messages that members exchange, change incompatibly.
inline constexpr uint32_t kProtocol = 2;

struct PeerInfo {
  std::string unsupported_reason;  // empty: the member supports RMA
  std::string host_id;             // equal for members whose GPUs may have peer access
  std::string worker;              // address of its UCX worker
  std::vector<MemoryRegionInfo> regions;
  uint64_t scratch_bytes = 0;  // must be equal at all members: it decides how sums are cut into pieces
  uint32_t protocol = kProtocol;
  bool operator==(const PeerInfo&) const = default;
};

std::string Encode(const PeerInfo& info);
Result<PeerInfo> Decode(std::string_view bytes);

// Returns the PeerInfo of every member, by rank. A collective of `host`.
Result<std::vector<PeerInfo>> ExchangePeerInfo(Communicator* host, const PeerInfo& own);

// Returns why these members cannot read each other's memory; empty when they can.
std::string WhyIncompatible(const std::vector<PeerInfo>& infos);

// Splits names joined by "+".
std::set<std::string> SplitNames(std::string_view joined);

// Returns the transports that can carry GPU memory, of the lanes that UCX has chosen to a peer
// ("cuda_ipc+tcp"): cuda_ipc on one host, else RDMA. Empty: none.
std::string GpuTransports(bool one_host, std::string_view lanes);

}  // namespace ringmaster::fabric::rma
