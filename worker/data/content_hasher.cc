// SPDX-License-Identifier: Apache-2.0

#include "worker/data/content_hasher.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include "base/hash.h"
#include "base/log.h"

namespace ringmaster::data {
namespace {

constexpr uint64_t kAhead = 4 * kContentBlock;  // announced to the kernel
constexpr Duration kPatience = seconds(120);
constexpr Duration kFirstPause = milliseconds(20);
constexpr Duration kLongestPause = seconds(1);
constexpr int kAttempts = 3;  // to read a file without a change meanwhile

Error Cancelled() { return {Code::kCancelled, "the hash of the data is no longer needed"}; }

}  // namespace

ContentHasher::ContentHasher(const FilePool& pool, const ContentHashOptions& options, uint64_t fingerprint)
    : pool_(pool), options_(options), cache_(options.cache_folder, options.node) {
  Add(static_cast<int64_t>(fingerprint));
  uint64_t bytes = 0;
  for (size_t file = 0; file < pool.count(); ++file)
    if (!pool.held(file)) bytes += pool.size(file);
  whole_ = bytes <= options_.most_bytes;
  if (options_.counter != nullptr) options_.counter->Begin(static_cast<int64_t>(whole_ ? bytes : 0));
}

void ContentHasher::AddBytes(std::span<const std::byte> bytes) {
  const auto hash = HashBlocks(bytes.size(), [&](uint64_t offset, size_t block) -> Result<uint64_t> {
    return Hash64(bytes.subspan(offset, block));
  });
  Add(static_cast<int64_t>(bytes.size()));
  Add(static_cast<int64_t>(hash.value()));
}

Status ContentHasher::AddRange(size_t file, uint64_t offset, uint64_t bytes) {
  if (cancelled()) return Cancelled();
  if (pool_.held(file)) {
    std::vector<std::byte> unused;
    RM_ASSIGN(const std::span<const std::byte> all,
              pool_.View(file, offset, static_cast<size_t>(bytes), &unused));
    AddBytes(all);
    return Ok();
  }
  Add(static_cast<int64_t>(bytes));
  if (!whole_) return Ok();
  RM_ASSIGN(const uint64_t hash, HashRange(file, offset, bytes));
  Add(static_cast<int64_t>(hash));
  return Ok();
}

// Returns the hash of a range of a file that is not in memory, from the cache if it is there.
Result<uint64_t> ContentHasher::HashRange(size_t file, uint64_t offset, uint64_t bytes) {
  for (int attempt = 1;; ++attempt) {
    RM_ASSIGN(const FilePool::Version before, pool_.CurrentVersion(file, options_.cancel));
    const HashCache::Key key = cache_.KeyOf(before, offset, bytes);
    std::optional<uint64_t> known = cache_.Find(key);
    HashCache::Lock lock;  // other workers on this node wait for the hash, rather than read the file, too
    if (!known.has_value()) {
      lock = cache_.LockFor(key, options_.cancel);
      if (cancelled()) return Cancelled();
      known = cache_.Find(key);
    }
    if (known.has_value()) {
      pool_.SetContent(file, {offset, bytes, *known});
      Count(static_cast<int64_t>(bytes));
      return *known;
    }
    RM_ASSIGN(const uint64_t hash, ReadRange(file, offset, bytes));
    RM_ASSIGN(const FilePool::Version after, pool_.CurrentVersion(file, options_.cancel));
    if (before == after) {
      pool_.SetContent(file, {offset, bytes, hash});
      cache_.Put(key, hash);
      return hash;
    }
    if (attempt == kAttempts) {
      log::Warn("data: {} changes while it is hashed", pool_.path(file));
      return hash;
    }
    Count(-static_cast<int64_t>(bytes));
  }
}

Result<uint64_t> ContentHasher::ReadRange(size_t file, uint64_t offset, uint64_t bytes) {
  return HashBlocks(bytes, [&](uint64_t at, size_t block) -> Result<uint64_t> {
    if (cancelled()) return Cancelled();
    if (at % kAhead == 0) {
      const uint64_t next = std::min(bytes, at + kAhead);
      pool_.Announce(file, offset + next, std::min(kAhead, bytes - next));
    }
    RM_ASSIGN(const std::span<const std::byte> view, ReadBlock(file, offset + at, block));
    bytes_read_ += block;
    Count(static_cast<int64_t>(block));
    return Hash64(view);
  });
}

// A network file system fails for a moment while its server restarts.
Result<std::span<const std::byte>> ContentHasher::ReadBlock(size_t file, uint64_t offset, size_t bytes) {
  const Time give_up = Now() + kPatience;
  Duration pause = kFirstPause;
  while (true) {
    auto view = pool_.View(file, offset, bytes, &buffer_, options_.cancel);
    if (view.ok() || view.error().code != Code::kUnavailable || Now() >= give_up || cancelled()) return view;
    if (pause == kFirstPause)
      log::Warn("data: {}; trying again for {} s", view.error().message, ToSeconds(kPatience));
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

bool ContentHasher::cancelled() const {
  return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
}

void ContentHasher::Count(int64_t bytes) const {
  if (options_.counter != nullptr) options_.counter->Add(bytes);
}

}  // namespace ringmaster::data
