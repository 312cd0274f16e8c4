// SPDX-License-Identifier: Apache-2.0

#include "worker/data/file_pool.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/open_file.h"
#include "base/time.h"
#include "worker/data/fingerprint.h"
#include "worker/data/folder.h"
#include "worker/data/problem.h"

namespace ringmaster::data {
namespace {

constexpr uint64_t kEndBytes = uint64_t{64} << 10;
// How often a thread that waits for the comparison of another one looks whether it is cancelled.
constexpr Duration kCancelPeriod = milliseconds(5);

Result<Fd> OpenForReading(const std::string& path) {
  Fd fd = OpenFile(path, O_RDONLY | O_NONBLOCK);
  if (fd.valid()) return fd;
  const int why = errno;
  if (why == ENOENT) {
    return Problem(Code::kNotFound, path, WhyMissing(path, std::strerror(why)),
                   "check the path, as the worker sees it");
  }
  return Problem(ErrnoError("", why).code, path, std::strerror(why), "make it readable for the worker");
}

// Missing in <linux/magic.h>.
constexpr uint64_t kLustreMagic = 0x0BD00BD0;

bool IsNetworkFileSystem(const struct statfs& about) {
  switch (static_cast<uint32_t>(about.f_type)) {
    case NFS_SUPER_MAGIC:
    case CEPH_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:
    case kLustreMagic:
      return true;
    default:
      return false;
  }
}

int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

Error Truncated(const std::string& path, uint64_t size, uint64_t offset, uint64_t bytes, uint64_t now) {
  return Problem(
      Code::kCorrupt, path,
      fmt::format("was truncated while in use: it had {} bytes and now has {}, so that {} bytes at "
                  "offset {} cannot be read",
                  size, now, bytes, offset),
      "restore the file and run again");
}

Error Replaced(const std::string& path) {
  return Problem(Code::kCorrupt, path, "was replaced by a file with other content while in use",
                 "restore the file and run again");
}

}  // namespace

Result<size_t> FilePool::Add(const std::string& path) {
  RM_ASSIGN(Fd fd, OpenForReading(path));
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return ErrnoError("stat " + path, errno);
  if (!S_ISREG(about.st_mode)) {
    return Problem(Code::kInvalid, path, S_ISDIR(about.st_mode) ? "is a folder" : "is not a regular file",
                   "give a file");
  }
  File file;
  file.path = path;
  file.size = static_cast<uint64_t>(about.st_size);
  file.held = file.size <= limits_.held_bytes - std::min(held_bytes_, limits_.held_bytes);
  if (file.held) {
    file.bytes.resize(file.size);
    RM_TRY(Read(fd.get(), file, 0, file.bytes));
    held_bytes_ += file.size;
  } else {
    RM_ASSIGN(file.ends, HashEnds(fd.get(), file));
  }
  const bool held = file.held;
  const Identity identity{about.st_dev, about.st_ino, about.st_mtim.tv_sec, about.st_mtim.tv_nsec, file.size};
  const size_t number = files_.size();
  files_.push_back(std::move(file));
  {
    const MutexLock lock(mutex_);
    open_.push_back(Open{});
  }
  if (!held) Keep(number, std::make_shared<const Fd>(std::move(fd)), identity);
  return number;
}

void FilePool::Replace(size_t number, std::vector<std::byte> bytes) {
  Close(number);
  File& file = files_[number];
  if (file.held) held_bytes_ -= file.size;
  file.size = bytes.size();
  file.bytes = std::move(bytes);
  file.held = true;
  held_bytes_ += file.size;
}

Result<std::span<const std::byte>> FilePool::View(size_t number, uint64_t offset, size_t bytes,
                                                  std::vector<std::byte>* buffer,
                                                  const std::atomic<bool>* cancel) const {
  const File& file = files_[number];
  CHECK(offset <= file.size && bytes <= file.size - offset, "{}: {} bytes at {} of {}", file.path, bytes,
        offset, file.size);
  if (file.held) return std::span<const std::byte>(file.bytes).subspan(offset, bytes);
  if (buffer->size() < bytes) buffer->resize(bytes);
  const std::span<std::byte> out = std::span(*buffer).first(bytes);
  RM_ASSIGN(const std::shared_ptr<const Fd> fd, Acquire(number, cancel));
  const Status read = Read(fd->get(), file, offset, out);
  // The next attempt opens the path again: the handle of a network file system may be stale.
  if (!read.ok() && read.error().code == Code::kUnavailable) Close(number);
  RM_TRY(read);
  return std::span<const std::byte>(out);
}

Result<FilePool::Version> FilePool::CurrentVersion(size_t number, const std::atomic<bool>* cancel) const {
  RM_ASSIGN(const std::shared_ptr<const Fd> fd, Acquire(number, cancel));
  struct stat file {};
  struct statfs system {};
  if (::fstat(fd->get(), &file) != 0 || ::fstatfs(fd->get(), &system) != 0) {
    const int why = errno;
    Close(number);
    return Problem(Code::kUnavailable, files_[number].path, std::strerror(why), "check the storage");
  }
  Version version;
  std::memcpy(&version.file_system, &system.f_fsid, sizeof version.file_system);
  version.device = file.st_dev;
  version.inode = file.st_ino;
  version.size = static_cast<uint64_t>(file.st_size);
  version.modified_ns = Nanoseconds(file.st_mtim);
  version.changed_ns = Nanoseconds(file.st_ctim);
  version.ends = files_[number].ends;
  version.shared = IsNetworkFileSystem(system);
  return version;
}

void FilePool::Announce(size_t number, uint64_t offset, uint64_t bytes) const {
  if (files_[number].held) return;
  const auto found = Find(number);
  if (!found.ok() || !found->known) return;  // the read that follows compares, or returns the error
  ::posix_fadvise(found->fd->get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_WILLNEED);
}

void FilePool::SetContent(size_t number, const Content& content) const {
  const MutexLock lock(mutex_);
  open_[number].content = content;
}

Result<FilePool::Identity> FilePool::IdentityOf(int fd, const std::string& path) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return Error{Code::kUnavailable, ErrnoError("stat " + path, errno).message};
  return Identity{about.st_dev, about.st_ino, about.st_mtim.tv_sec, about.st_mtim.tv_nsec,
                  static_cast<uint64_t>(about.st_size)};
}

Result<FilePool::Candidate> FilePool::Find(size_t number) const {
  const File& file = files_[number];
  Candidate found;
  Identity before;
  Identity earlier;
  {
    const MutexLock lock(mutex_);
    Open& open = open_[number];
    before = open.identity;
    earlier = open.earlier;
    if (open.fd != nullptr) {
      recent_.splice(recent_.begin(), recent_, open.use);
      found.fd = open.fd;
    }
  }
  if (found.fd != nullptr) {
    // A program that writes the file again, in place, changes what an open file has.
    // Of a file that cannot be examined or is truncated, the read returns the error.
    const auto now = IdentityOf(found.fd->get(), file.path);
    found.known = !now.ok() || *now == before || *now == earlier || now->size < file.size;
    if (found.known) return found;
    Close(number);
  }
  auto opened = OpenForReading(file.path);
  if (!opened.ok()) return Error{Code::kUnavailable, opened.error().message};
  RM_ASSIGN(found.identity, IdentityOf(opened->get(), file.path));
  const uint64_t size = found.identity.size;
  if (size < file.size) return Truncated(file.path, file.size, size, file.size - size, size);
  found.fd = std::make_shared<const Fd>(std::move(opened).value());
  found.known = found.identity == before || found.identity == earlier;
  if (found.known) Keep(number, found.fd, found.identity);
  return found;
}

Result<std::shared_ptr<const Fd>> FilePool::Acquire(size_t number, const std::atomic<bool>* cancel) const {
  RM_ASSIGN(Candidate found, Find(number));
  if (found.known) return std::move(found.fd);
  RM_ASSIGN(const bool compare, BeginComparison(number, found.identity, cancel));
  if (compare) {
    const Status verdict = Compare(number, found.fd->get(), found.identity, cancel);
    EndComparison(number, found.identity, verdict);
    RM_TRY(verdict);
  }
  Keep(number, found.fd, found.identity);
  return std::move(found.fd);
}

Result<bool> FilePool::BeginComparison(size_t number, const Identity& now,
                                       const std::atomic<bool>* cancel) const {
  MutexLock lock(mutex_);
  Open& open = open_[number];
  while (open.comparing) {
    RM_TRY(Interrupted(number, cancel));
    compared_.WaitUntil(lock, Now() + kCancelPeriod);
  }
  if (now == open.identity || now == open.earlier) return false;
  if (open.rejected.has_value() && now == *open.rejected) return Replaced(files_[number].path);
  open.comparing = true;
  return true;
}

void FilePool::EndComparison(size_t number, const Identity& now, const Status& verdict) const {
  {
    const MutexLock lock(mutex_);
    Open& open = open_[number];
    open.comparing = false;
    if (verdict.ok())
      open.earlier = std::exchange(open.identity, now);
    else if (verdict.error().code == Code::kCorrupt)
      open.rejected = now;
  }
  compared_.NotifyAll();
}

Status FilePool::Interrupted(size_t number, const std::atomic<bool>* cancel) const {
  const std::string& path = files_[number].path;
  if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
    return Error{Code::kCancelled, path + ": its comparison with what it was is no longer needed"};
  if (comparison_.interrupts.load(std::memory_order_relaxed) > 0)
    return Error{Code::kUnavailable, path + ": its comparison with what it was was interrupted"};
  return Ok();
}

void FilePool::Keep(size_t number, std::shared_ptr<const Fd> fd, const Identity& identity) const {
  const MutexLock lock(mutex_);
  Open& open = open_[number];
  if (open.fd != nullptr) return;  // another thread was faster
  if (recent_.size() >= limits_.open_files) {
    open_[recent_.back()].fd.reset();  // a read in progress keeps it open until it ends
    recent_.pop_back();
  }
  recent_.push_front(number);
  open.fd = std::move(fd);
  open.use = recent_.begin();
  if (identity != open.identity) open.earlier = std::exchange(open.identity, identity);
}

void FilePool::Close(size_t number) const {
  const MutexLock lock(mutex_);
  Open& open = open_[number];
  if (open.fd == nullptr) return;
  recent_.erase(open.use);
  open.fd.reset();
}

// The inode alone does not decide: some network file systems number files again at each mount.
Status FilePool::Compare(size_t number, int fd, const Identity& now, const std::atomic<bool>* cancel) const {
  const File& file = files_[number];
  RM_ASSIGN(const uint64_t ends, HashEnds(fd, file));
  if (ends != file.ends) return Replaced(file.path);
  std::optional<Content> content;
  bool grown = false;
  {
    const MutexLock lock(mutex_);
    const Open& open = open_[number];
    grown = now.HasGrownFrom(open.identity);
    if (!grown || !open.compared_grown) content = open.content;
  }
  if (!content.has_value()) return Ok();
  log::Info("data: {} was written since the start; comparing {} bytes", file.path, content->bytes);
  std::vector<std::byte> buffer;
  RM_ASSIGN(const uint64_t hash,
            HashBlocks(content->bytes, [&](uint64_t offset, size_t bytes) -> Result<uint64_t> {
              RM_TRY(Interrupted(number, cancel));
              buffer.resize(bytes);
              RM_TRY(Read(fd, file, content->offset + offset, buffer));
              comparison_.bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
              return Hash64(buffer);
            }));
  if (hash != content->hash) return Replaced(file.path);
  if (grown) {
    const MutexLock lock(mutex_);
    open_[number].compared_grown = true;
  }
  return Ok();
}

Status FilePool::Read(int fd, const File& file, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int why = errno;
      return Problem(
          Code::kUnavailable, file.path,
          fmt::format("{} bytes at offset {} cannot be read: {}", out.size(), offset, std::strerror(why)),
          "check the storage");
    }
    if (got == 0) {
      struct stat about {};
      const auto now = ::fstat(fd, &about) == 0 ? static_cast<uint64_t>(about.st_size) : offset + done;
      return Truncated(file.path, file.size, offset, out.size(), now);
    }
    done += static_cast<size_t>(got);
  }
  return Ok();
}

Result<uint64_t> FilePool::HashEnds(int fd, const File& file) {
  std::vector<std::byte> end(std::min(file.size, kEndBytes));
  RM_TRY(Read(fd, file, 0, end));
  const uint64_t head = Hash64(end);
  RM_TRY(Read(fd, file, file.size - end.size(), end));
  return Hash64(end, head);
}

}  // namespace ringmaster::data
