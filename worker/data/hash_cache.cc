// SPDX-License-Identifier: Apache-2.0

#include "worker/data/hash_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/open_file.h"
#include "base/time.h"

namespace ringmaster::data {
namespace {

constexpr int kFormat = 1;
constexpr Duration kLongestWait = seconds(600);
constexpr Duration kPoll = milliseconds(5);
// The longest time between two values of a file system's clock: the kernel's is at most 10 ms apart, but some
// file systems store whole seconds.
constexpr int64_t kFineTick_ns = 20'000'000;
constexpr int64_t kCoarseTick_ns = 2'000'000'000;

uint64_t HashOf(std::string_view text) { return Hash64(std::as_bytes(std::span(text.data(), text.size()))); }

// An entry is its key, the hash, and a check of both: a disk that was full or lost its power leaves parts.
std::string Entry(const std::string& key, uint64_t hash) {
  const std::string text = key + "\n" + HashHex(hash) + "\n";
  return text + HashHex(HashOf(text)) + "\n";
}

int64_t WallClock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

HashCache::Lock::~Lock() {
  if (fd_.valid()) ::unlink(path_.c_str());  // first: the next process that opens it finds the entry
}

HashCache::HashCache(std::string folder, std::string node)
    : folder_(std::move(folder)), node_(std::move(node)) {}

HashCache::Key HashCache::KeyOf(const FilePool::Version& version, uint64_t offset, uint64_t bytes) const {
  // A device number is that of a mount on one node.
  const std::string place =
      version.shared ? "shared" : fmt::format("node={} device={:x}", node_, version.device);
  return {fmt::format("ringmaster-data-hash {} {} system={:x} inode={} size={} modified={} changed={} "
                      "ends={:x} range={}+{}",
                      kFormat, place, version.file_system, version.inode, version.size, version.modified_ns,
                      version.changed_ns, version.ends, offset, bytes),
          std::max(version.modified_ns, version.changed_ns), WallClock_ns()};
}

std::string HashCache::PathOf(const Key& key) const { return folder_ + "/" + HashHex(HashOf(key.text)); }

std::optional<uint64_t> HashCache::Find(const Key& key) const {
  if (folder_.empty()) return std::nullopt;
  const auto text = ReadFile(PathOf(key), size_t{1} << 16);
  if (!text.ok() || text->size() < key.text.size() + 1 + 16) return std::nullopt;
  const std::string digits = text->substr(key.text.size() + 1, 16);
  uint64_t hash = 0;
  for (const char digit : digits) {
    const size_t value = std::string_view("0123456789abcdef").find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    hash = hash << 4 | value;
  }
  if (*text != Entry(key.text, hash)) return std::nullopt;
  return hash;
}

void HashCache::Put(const Key& key, uint64_t hash) const {
  if (folder_.empty()) return;
  const int64_t tick = key.changed_ns % 1'000'000'000 == 0 ? kCoarseTick_ns : kFineTick_ns;
  if (key.looked_ns - key.changed_ns < tick) return;
  if (!MakeFolder(folder_).ok()) return;
  // Not made durable: an entry that is lost costs one more read of the file.
  const std::string path = PathOf(key);
  const std::string temporary =
      fmt::format("{}.{}", path, HashHex(HashOf(fmt::format("{} {} {}", node_, ::getpid(), WallClock_ns()))));
  Fd fd = OpenFile(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (!fd.valid()) return;
  const std::string entry = Entry(key.text, hash);
  const bool written = WriteAll(fd, temporary, std::as_bytes(std::span(entry))).ok() &&
                       CloseFile(std::move(fd), temporary).ok();
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

HashCache::Lock HashCache::LockFor(const Key& key, const std::atomic<bool>* cancel) const {
  Lock lock;
  if (folder_.empty() || !MakeFolder(folder_).ok()) return lock;
  lock.path_ = PathOf(key) + ".lock";
  Fd fd = OpenFile(lock.path_, O_RDWR | O_CREAT, 0666);
  if (!fd.valid()) return lock;
  const Time give_up = Now() + kLongestWait;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return lock;
    if (Now() >= give_up || (cancel != nullptr && cancel->load(std::memory_order_relaxed))) return lock;
    std::this_thread::sleep_for(kPoll);
  }
  lock.fd_ = std::move(fd);
  return lock;
}

}  // namespace ringmaster::data
