// SPDX-License-Identifier: Apache-2.0

// A same-host peer: its control page and segments, mapped read-only, and a way to know that it is gone. Used
// by the communication thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "worker/fabric/address.h"
#include "worker/fabric/shm/control.h"
#include "worker/fabric/shm/memory.h"

namespace ringmaster::fabric::shm {

class Peer {
 public:
  // Maps everything and makes sure that it belongs to the process that gave the address, not to a later one
  // with the same number. kUnavailable when that process is gone.
  static Result<std::unique_ptr<Peer>> Open(const MemberAddress& address);

  const std::string& uuid() const { return uuid_; }
  const ControlPage& page() const { return *reinterpret_cast<const ControlPage*>(segments_[0].data()); }

  // The bytes that a descriptor names; nullptr when it names none of the peer's.
  const std::byte* Data(uint64_t segment, uint64_t offset, uint64_t bytes) const;

  // The process has ended, or has destroyed its Fabric. A system call: for slow paths.
  bool Gone() const;

 private:
  Peer() = default;

  std::string uuid_;
  std::vector<Mapping> segments_;
  Fd process_;  // pidfd; invalid on kernels without
  int64_t pid_ = 0;
};

}  // namespace ringmaster::fabric::shm
