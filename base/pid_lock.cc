// SPDX-License-Identifier: Apache-2.0

#include "base/pid_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/log.h"
#include "base/open_file.h"

namespace ringmaster {

namespace {

Result<Fd> Lock(const std::string& path, int flags) {
  Fd lock = OpenFile(path, flags | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (!lock.valid()) return ErrnoError("open " + path, errno);
  const int outcome = WithoutInterrupts([&] { return ::flock(lock.get(), LOCK_EX | LOCK_NB); });
  if (outcome != 0 && errno == EWOULDBLOCK) {
    const auto owner = ReadFile(path, 64);
    return Error{Code::kConflict, owner.ok() && !owner->empty() ? *owner : "unknown"};
  }
  if (outcome != 0)
    log::Warn("{}: the file system has no locks ({}): another process that uses the folder is not noticed",
              path, std::strerror(errno));
  return lock;
}

}  // namespace

Result<Fd> TakePidLock(const std::string& path) {
  RM_ASSIGN(Fd lock, Lock(path, O_RDWR | O_CREAT));
  const std::string pid = std::to_string(::getpid());
  if (WithoutInterrupts([&] { return ::ftruncate(lock.get(), 0); }) != 0 ||
      WithoutInterrupts([&] { return ::pwrite(lock.get(), pid.data(), pid.size(), 0); }) < 0)
    return ErrnoError("write " + path, errno);
  return lock;
}

Result<Fd> HoldPidLock(const std::string& path) { return Lock(path, O_RDWR); }

}  // namespace ringmaster
