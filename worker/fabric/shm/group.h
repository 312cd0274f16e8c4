// SPDX-License-Identifier: Apache-2.0

// The members of one generation on one host, and how they wait for each other; collectives.h builds on it.
//
// All members pass the same phases in the same order. Publish() announces that this rank has reached the next
// phase; Await(q, phase) waits until rank q has. After a successful Await, q had not given up the generation
// when it reached the phase. After a successful Verify(q), nothing read from q so far was changed during the
// read.
//
// Not thread-safe. After a failure every operation fails with the same error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "worker/fabric/shm/domain.h"
#include "worker/fabric/stall.h"

namespace ringmaster::fabric::shm {

class Group {
 public:
  Group(Domain& domain, uint64_t generation, int rank, std::vector<const Peer*> peers, int cpus);

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(peers_.size()); }
  uint64_t generation() const { return generation_; }
  Domain& domain() { return domain_; }
  void ShowWait() const { domain_.ShowWait(); }
  ControlPage& own() { return own_; }
  const ControlPage& page(int q) const { return q == rank_ ? own_ : peers_[q]->page(); }
  const std::byte* Data(int q, const Descriptor& descriptor, uint64_t offset = 0) const;
  const std::byte* Staging(int q, size_t offset);

  // Waits until all peers have entered the generation.
  Status WaitForMembers();

  uint64_t Publish();
  Status Await(int q, uint64_t phase) { return AwaitWord(q, page(q).phase, phase); }
  Status AwaitAll(uint64_t phase);
  Status Verify(int q);
  Status VerifyAll();

  // Stores `value` into a word of the own page and wakes the peers that sleep on it.
  void StoreAndWake(std::atomic<uint64_t>& word, uint64_t value);
  Status AwaitWord(int q, const std::atomic<uint64_t>& word, uint64_t value);

  // Records the first failure, publishes that this process gives up the generation, and returns the recorded
  // error.
  Error Fail(Error error);
  const std::optional<Error>& failure() const { return failure_; }

 private:
  Status SleepUntil(int q, const std::atomic<uint64_t>& word, uint64_t value);
  Status Sleep(int q, const std::atomic<uint64_t>& word, uint64_t value);
  // Fails when all members have waited for longer than the timeout.
  Status CheckStall();

  Domain& domain_;
  ControlPage& own_;
  const uint64_t generation_;
  const int rank_;
  const std::vector<const Peer*> peers_;  // nullptr at the own rank
  std::vector<uint64_t> looks_;           // by rank: ControlPage::looks when it was last read
  const Duration spin_;
  const int yields_;
  uint64_t phase_ = 0;
  StallDetector stall_;
  std::optional<Error> failure_;
};

}  // namespace ringmaster::fabric::shm
