// SPDX-License-Identifier: Apache-2.0

// The shared memory of one process: the memory it owns as long as the Fabric lives, and the peers it has
// mapped. The entry of shm/.
//
// Not thread-safe, except Abort, GiveUp and aborted.
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
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/address.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/shm/control.h"
#include "worker/fabric/shm/memory.h"
#include "worker/fabric/shm/peer.h"

namespace ringmaster::fabric::shm {

class Domain {
 public:
  static Result<std::unique_ptr<Domain>> Create(const std::string& uuid, Duration timeout,
                                                std::function<void()> on_wait = {});
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label);
  std::vector<Segment> Segments() const;

  // As Fabric::Connect. REQUIRES: all members are on this host.
  Result<std::unique_ptr<Communicator>> Connect(uint64_t generation, int rank,
                                                const std::vector<MemberAddress>& members);
  // Ends all operations of `generation` and older, here and at the peers. Thread-safe.
  void Abort(uint64_t generation);

  // --- for Group ---
  // Publishes that this process has given up `generation` and all older ones. Thread-safe.
  void GiveUp(uint64_t generation);
  ControlPage& page() { return *reinterpret_cast<ControlPage*>(memories_[kControlSegment].mapping.data()); }
  std::byte* staging() { return memories_[kStagingSegment].mapping.data(); }
  Duration timeout() const { return timeout_; }
  void ShowWait() const {
    if (on_wait_) on_wait_();
  }
  uint64_t aborted() const { return aborted_.load(std::memory_order_acquire); }
  struct Location {
    uint64_t segment;  // index in Segments()
    uint64_t offset;
  };
  // Returns where `data` is in the memory of this Domain; nullopt for other memory, which is not shareable.
  std::optional<Location> Find(const std::byte* data, size_t bytes) const;

 private:
  Domain(Duration timeout, std::function<void()> on_wait) : timeout_(timeout), on_wait_(std::move(on_wait)) {}
  Status OpenPeers(int rank, const std::vector<MemberAddress>& members);

  const Duration timeout_;
  const std::function<void()> on_wait_;
  std::vector<OwnMemory> memories_;                     // in the order of Segments()
  std::map<std::string, std::unique_ptr<Peer>> peers_;  // by uuid
  std::atomic<uint64_t> aborted_{0};
};

}  // namespace ringmaster::fabric::shm
