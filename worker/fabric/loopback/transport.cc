// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/loopback/transport.h"

namespace ringmaster::fabric::loopback {

template <class Ready>
Status Domain::WaitUntil(MutexLock& lock, int rank, const Ready& ready) {
  Rank& self = ranks_[rank];
  while (true) {
    if (aborted_) return Error{Code::kCancelled, "aborted"};
    if (self.failure) return *self.failure;
    RM_TRY(Pump(rank));
    if (ready(self)) return Ok();
    self.waiting = true;
    AdvanceIfAllWait();
    while (self.waiting) self.changed.Wait(lock);
  }
}

LoopbackTransport::~LoopbackTransport() {
  const MutexLock lock(domain_.mutex_);
  domain_.ranks_[rank_].left = true;
  domain_.AdvanceIfAllWait();
}

Status LoopbackTransport::Send(int peer, Tag tag, std::span<const std::byte> data) {
  const MutexLock lock(domain_.mutex_);
  domain_.ranks_[rank_].channels[peer].Queue(tag, data);
  return domain_.Pump(rank_);
}

Status LoopbackTransport::Post(int peer, Tag tag, const PostedReceive& receive) {
  const MutexLock lock(domain_.mutex_);
  return domain_.ranks_[rank_].channels[peer].Post(tag, receive);
}

Status LoopbackTransport::Wait(int peer) {
  MutexLock lock(domain_.mutex_);
  uint64_t& waited = domain_.ranks_[rank_].waited[peer];
  RM_TRY(domain_.WaitUntil(
      lock, rank_, [&](const Domain::Rank& self) { return self.channels[peer].delivered() > waited; }));
  ++waited;
  return Ok();
}

Status LoopbackTransport::WaitForSends(int peer, uint64_t behind) {
  MutexLock lock(domain_.mutex_);
  return domain_.WaitUntil(lock, rank_, [&](const Domain::Rank& self) {
    return self.channels[peer].sent() + behind >= self.channels[peer].queued();
  });
}

Status LoopbackTransport::Flush() {
  MutexLock lock(domain_.mutex_);
  return domain_.WaitUntil(lock, rank_, [](const Domain::Rank& self) {
    for (const Channel& channel : self.channels)
      if (!channel.drained()) return false;
    return true;
  });
}

}  // namespace ringmaster::fabric::loopback
