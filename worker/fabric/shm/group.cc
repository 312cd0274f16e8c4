// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/group.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "worker/fabric/shm/futex.h"

namespace ringmaster::fabric::shm {
namespace {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// With a CPU for every member it pays to spin for about as long as a sleep and a wake-up cost. With fewer
// CPUs a spinning member keeps the awaited one from running, so it yields at once.
Group::Group(Domain& domain, uint64_t generation, int rank, std::vector<const Peer*> peers, int cpus)
    : domain_(domain),
      own_(domain.page()),
      generation_(generation),
      rank_(rank),
      peers_(std::move(peers)),
      looks_(peers_.size()),
      spin_(std::chrono::microseconds(world() <= cpus ? 30 : 0)),
      yields_(world() <= cpus ? 10 : 50),
      stall_(rank, world(), domain.timeout()) {}

const std::byte* Group::Data(int q, const Descriptor& descriptor, uint64_t offset) const {
  CHECK(q != rank_ && offset <= descriptor.bytes);
  return peers_[q]->Data(descriptor.segment, descriptor.offset + offset, descriptor.bytes - offset);
}

const std::byte* Group::Staging(int q, size_t offset) {
  return q == rank_ ? domain_.staging() + offset : peers_[q]->Data(kStagingSegment, offset, 0);
}

Status Group::WaitForMembers() {
  for (int q = 0; q < world(); ++q) {
    if (q == rank_) continue;
    RM_TRY(AwaitWord(q, page(q).ready, generation_));
    if (page(q).ready.load(std::memory_order_acquire) != generation_)
      return Fail({Code::kCancelled, fmt::format("rank {} has joined a newer generation", q)});
  }
  return Ok();
}

uint64_t Group::Publish() {
  StoreAndWake(own_.phase, ++phase_);
  return phase_;
}

void Group::StoreAndWake(std::atomic<uint64_t>& word, uint64_t value) {
  word.store(value, std::memory_order_release);
  // Pairs with the fence in SleepUntil of a peer: it sees the new value, or this process sees that it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Peer* peer : peers_) {
    if (peer != nullptr && peer->page().sleepers.load(std::memory_order_relaxed) != 0) {
      FutexWakeAll(word);
      return;
    }
  }
}

Status Group::AwaitAll(uint64_t phase) {
  for (int q = 0; q < world(); ++q)
    if (q != rank_) RM_TRY(Await(q, phase));
  return Ok();
}

Status Group::AwaitWord(int q, const std::atomic<uint64_t>& word, uint64_t value) {
  constexpr int kPausesPerClock = 16;  // per reading of the clock; a pause takes 10 to 100 ns, by CPU
  if (failure_) return *failure_;
  Time start = kNever;
  for (int i = 0; word.load(std::memory_order_acquire) < value; ++i) {
    Pause();
    if (i % kPausesPerClock != kPausesPerClock - 1) continue;
    const Time now = Now();
    if (start == kNever) start = now;
    if (now - start < spin_) continue;
    RM_TRY(SleepUntil(q, word, value));
    break;
  }
  return Verify(q);
}

Status Group::Verify(int q) {
  // Earlier reads must not move below the load of `stopped`.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (domain_.aborted() >= generation_ || page(q).stopped.load(std::memory_order_relaxed) >= generation_) {
    const bool own = domain_.aborted() >= generation_;
    return Fail({Code::kCancelled, own ? fmt::format("generation {} was aborted", generation_)
                                       : fmt::format("rank {} gave up generation {}", q, generation_)});
  }
  return Ok();
}

Status Group::VerifyAll() {
  for (int q = 0; q < world(); ++q)
    if (q != rank_) RM_TRY(Verify(q));
  return Ok();
}

Status Group::SleepUntil(int q, const std::atomic<uint64_t>& word, uint64_t value) {
  for (int i = 0; i < yields_; ++i) {
    ::sched_yield();
    if (word.load(std::memory_order_acquire) >= value) return Ok();
  }
  own_.waits.fetch_add(1, std::memory_order_release);  // odd: waits
  stall_.Begin(Now());
  const Status slept = Sleep(q, word, value);
  own_.waits.fetch_add(1, std::memory_order_release);
  return slept;
}

Status Group::Sleep(int q, const std::atomic<uint64_t>& word, uint64_t value) {
  Duration sleep = std::chrono::microseconds(200);
  while (true) {
    own_.sleepers.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t seen = word.load(std::memory_order_acquire);
    if (seen < value) FutexWait(word, static_cast<uint32_t>(seen), sleep);
    own_.sleepers.store(0, std::memory_order_relaxed);
    if (word.load(std::memory_order_acquire) >= value) return Ok();
    RM_TRY(Verify(q));
    // Check only the awaited peer: if it waits for a dead peer itself, it gives up the generation.
    if (peers_[q]->Gone()) {
      if (word.load(std::memory_order_acquire) >= value) return Ok();  // stored before the peer ended
      return Fail({Code::kUnavailable, fmt::format("rank {} is gone", q)});
    }
    RM_TRY(CheckStall());
    sleep = std::min<Duration>(sleep * 2, milliseconds(2));
  }
}

Status Group::CheckStall() {
  const Time now = Now();
  if (stall_.AnnouncementDue(now)) domain_.ShowWait();
  own_.looks.fetch_add(1, std::memory_order_release);
  for (int q = 0; q < world(); ++q) {
    if (q == rank_) continue;
    const uint64_t waits = page(q).waits.load(std::memory_order_acquire);
    const uint64_t looks = page(q).looks.load(std::memory_order_acquire);
    if (waits % 2 == 1 && looks != std::exchange(looks_[static_cast<size_t>(q)], looks))
      stall_.Heard(q, waits, now);
  }
  if (!stall_.Stalled(now, Time{})) return Ok();
  return Fail({Code::kDeadlineExceeded,
               fmt::format("all members waited for {:.1f} s", ToSeconds(domain_.timeout()))});
}

Error Group::Fail(Error error) {
  if (!failure_) {
    failure_ = error;
    domain_.GiveUp(generation_);
  }
  return *failure_;
}

}  // namespace ringmaster::fabric::shm
