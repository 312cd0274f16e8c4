// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/peer.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ringmaster::fabric::shm {

Result<std::unique_ptr<Peer>> Peer::Open(const MemberAddress& address) {
  auto peer = std::unique_ptr<Peer>(new Peer);
  peer->uuid_ = address.uuid;
  peer->pid_ = address.pid;
  // Opened before the mappings: if their uuid matches, this pidfd is of the process that owns them.
  peer->process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(address.pid), 0)));
  if (!peer->process_.valid() && errno != ENOSYS)
    return Error{Code::kUnavailable, fmt::format("process {} is gone", address.pid)};
  if (address.segments.size() <= kStagingSegment ||
      address.segments[kControlSegment].bytes < sizeof(ControlPage) ||
      address.segments[kStagingSegment].bytes < kStagingBytes)
    return Error{Code::kInvalid, fmt::format("address of process {}: segments missing", address.pid)};
  for (const Segment& segment : address.segments) {
    RM_ASSIGN(Mapping mapping, MapPeer(address.pid, segment));
    peer->segments_.push_back(std::move(mapping));
    const ControlPage& page = peer->page();
    if (page.magic != ControlPage::kMagic || page.layout != ControlPage::kLayout || page.pid != address.pid ||
        std::memcmp(page.uuid, address.uuid.data(), sizeof page.uuid) != 0)
      return Error{Code::kUnavailable,
                   fmt::format("process {} is not the one that published the address", address.pid)};
  }
  return peer;
}

const std::byte* Peer::Data(uint64_t segment, uint64_t offset, uint64_t bytes) const {
  if (segment >= segments_.size()) return nullptr;
  const Mapping& mapping = segments_[segment];
  if (offset > mapping.bytes() || bytes > mapping.bytes() - offset) return nullptr;
  return mapping.data() + offset;
}

bool Peer::Gone() const {
  if (page().closed.load(std::memory_order_acquire) != 0) return true;
  if (!process_.valid()) return ::kill(static_cast<pid_t>(pid_), 0) != 0 && errno == ESRCH;
  pollfd poll = {process_.get(), POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

}  // namespace ringmaster::fabric::shm
