// SPDX-License-Identifier: Apache-2.0

// Simulates a slow or full disk when preloaded into a process (LD_PRELOAD). Files in a folder "checkpoints"
// only:
//   SLOW_DISK_MS  milliseconds by which each fsync takes longer
//   SLOW_READ_MS  milliseconds by which each read of a chunk takes longer
//   FULL_DISK     while this file exists, each write fails with ENOSPC
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Returns whether the path of `fd` contains "/checkpoints/" and `part`.
bool InCheckpoint(int fd, const char* part) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return std::strstr(path, "/checkpoints/") != nullptr && std::strstr(path, part) != nullptr;
}

void Delay(const char* variable, int fd, const char* part) {
  const char* const ms = std::getenv(variable);
  if (ms != nullptr && InCheckpoint(fd, part)) ::poll(nullptr, 0, std::atoi(ms));
}

}  // namespace

extern "C" int fsync(int fd) {
  Delay("SLOW_DISK_MS", fd, "");
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" ssize_t read(int fd, void* buffer, size_t bytes) {
  Delay("SLOW_READ_MS", fd, "/chunk-");
  return ::syscall(SYS_read, fd, buffer, bytes);
}

extern "C" ssize_t write(int fd, const void* buffer, size_t bytes) {
  const char* const flag = std::getenv("FULL_DISK");
  if (flag != nullptr && ::access(flag, F_OK) == 0 && InCheckpoint(fd, "")) {
    errno = ENOSPC;
    return -1;
  }
  return ::syscall(SYS_write, fd, buffer, bytes);
}
