// SPDX-License-Identifier: Apache-2.0

// A same-host peer: its control page and segments, mapped read-only, and a check whether it is gone. Not
// thread-safe.
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
  // Maps all segments and checks that they belong to the process that published the address, not to a later
  // process with the same number. Errors: kUnavailable when that process is gone.
  static Result<std::unique_ptr<Peer>> Open(const MemberAddress& address);

  const std::string& uuid() const { return uuid_; }
  const ControlPage& page() const { return *reinterpret_cast<const ControlPage*>(segments_[0].data()); }

  // Returns the bytes at an offset of a segment; nullptr when they are outside of the peer's memory.
  const std::byte* Data(uint64_t segment, uint64_t offset, uint64_t bytes) const;

  // Returns whether the process has ended or has destroyed its Fabric. Makes a system call: for slow paths.
  bool Gone() const;

 private:
  Peer() = default;

  std::string uuid_;
  std::vector<Mapping> segments_;
  Fd process_;  // pidfd; invalid on kernels without pidfd_open
  int64_t pid_ = 0;
};

}  // namespace ringmaster::fabric::shm
