// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/domain.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "worker/fabric/shm/communicator.h"
#include "worker/fabric/shm/futex.h"
#include "worker/fabric/shm/group.h"

namespace ringmaster::fabric::shm {

Result<std::unique_ptr<Domain>> Domain::Create(const std::string& uuid, Duration timeout,
                                               std::function<void()> on_wait) {
  auto domain = std::unique_ptr<Domain>(new Domain(timeout, std::move(on_wait)));
  RM_ASSIGN(OwnMemory control, AllocateShared(sizeof(ControlPage), "control"));
  RM_ASSIGN(OwnMemory staging, AllocateShared(kStagingBytes, "staging"));
  domain->memories_.push_back(std::move(control));
  domain->memories_.push_back(std::move(staging));
  auto* page = new (domain->memories_[kControlSegment].mapping.data()) ControlPage;
  page->layout = ControlPage::kLayout;
  page->pid = ::getpid();
  CHECK(uuid.size() == sizeof page->uuid);
  std::memcpy(page->uuid, uuid.data(), sizeof page->uuid);
  page->magic = ControlPage::kMagic;
  return domain;
}

Domain::~Domain() {
  if (memories_.empty()) return;
  page().closed.store(1, std::memory_order_release);
  FutexWakeAll(page().phase);
}

Result<std::span<std::byte>> Domain::Allocate(size_t bytes, std::string_view label) {
  if (bytes == 0) return std::span<std::byte>();
  RM_ASSIGN(OwnMemory memory, AllocateShared(bytes, label));
  memories_.push_back(std::move(memory));
  return std::span<std::byte>(memories_.back().mapping.data(), bytes);
}

std::vector<Segment> Domain::Segments() const {
  std::vector<Segment> segments;
  for (const OwnMemory& memory : memories_) segments.push_back({memory.fd.get(), memory.mapping.bytes()});
  return segments;
}

std::optional<Domain::Location> Domain::Find(const std::byte* data, size_t bytes) const {
  for (size_t i = kStagingSegment + 1; i < memories_.size(); ++i) {
    const Mapping& mapping = memories_[i].mapping;
    if (data < mapping.data() || data >= mapping.data() + mapping.bytes()) continue;
    const auto offset = static_cast<size_t>(data - mapping.data());
    if (bytes <= mapping.bytes() - offset) return Location{i, offset};
  }
  return std::nullopt;
}

void Domain::GiveUp(uint64_t generation) {
  std::atomic<uint64_t>& stopped = page().stopped;
  uint64_t current = stopped.load(std::memory_order_relaxed);
  while (current < generation && !stopped.compare_exchange_weak(current, generation)) {
  }
  // Orders the store before the caller's next writes to its buffers.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  FutexWakeAll(page().phase);
}

void Domain::Abort(uint64_t generation) {
  uint64_t current = aborted_.load(std::memory_order_relaxed);
  while (current < generation && !aborted_.compare_exchange_weak(current, generation)) {
  }
  GiveUp(generation);
}

Status Domain::OpenPeers(int rank, const std::vector<MemberAddress>& members) {
  std::map<std::string, std::unique_ptr<Peer>> kept;
  for (size_t q = 0; q < members.size(); ++q) {
    if (q == static_cast<size_t>(rank)) continue;
    const MemberAddress& member = members[q];
    if (kept.contains(member.uuid)) return Error{Code::kInvalid, fmt::format("rank {} is listed twice", q)};
    if (auto known = peers_.find(member.uuid); known != peers_.end()) {
      kept[member.uuid] = std::move(known->second);
      peers_.erase(known);
      continue;
    }
    auto peer = Peer::Open(member);
    if (!peer.ok()) return peer.error().In(fmt::format("rank {}", q));
    kept[member.uuid] = std::move(*peer);
  }
  peers_ = std::move(kept);
  return Ok();
}

Result<std::unique_ptr<Communicator>> Domain::Connect(uint64_t generation, int rank,
                                                      const std::vector<MemberAddress>& members) {
  if (members.size() > kMaxRanks)
    return Error{Code::kInvalid, fmt::format("{} ranks on one host; at most {}", members.size(), kMaxRanks)};
  ControlPage& own = page();
  if (own.ready.load(std::memory_order_relaxed) >= generation)
    return Error{Code::kInvalid, fmt::format("generation {} is not newer than the last", generation)};
  if (aborted() >= generation)
    return Error{Code::kCancelled, fmt::format("generation {} was aborted", generation)};
  // Readers of the old generation must notice its end before the counters restart.
  GiveUp(generation - 1);
  if (auto opened = OpenPeers(rank, members); !opened.ok()) {
    GiveUp(generation);  // for peers that wait in Connect for this process
    return opened.error();
  }
  own.phase.store(0, std::memory_order_release);
  for (size_t q = 0; q < members.size(); ++q) {
    own.offers[q].count.store(0, std::memory_order_release);
    own.takes[q].count.store(0, std::memory_order_release);
  }
  std::vector<const Peer*> peers;
  for (const MemberAddress& member : members) {
    const auto peer = peers_.find(member.uuid);
    peers.push_back(peer == peers_.end() ? nullptr : peer->second.get());
  }
  auto group = std::make_unique<Group>(*this, generation, rank, std::move(peers), UsableCpus());
  group->StoreAndWake(own.ready, generation);
  RM_TRY(group->WaitForMembers());
  return NewCommunicator(std::move(group));
}

}  // namespace ringmaster::fabric::shm
