// SPDX-License-Identifier: Apache-2.0

// Simulates a slow disk when preloaded into a process (LD_PRELOAD): each fsync of a checkpoint's file takes
// SLOW_DISK_MS milliseconds longer.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" int fsync(int fd) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  const char* const ms = std::getenv("SLOW_DISK_MS");
  if (ms != nullptr && length > 0) {
    path[length] = '\0';
    if (std::strstr(path, "/checkpoints/") != nullptr) ::poll(nullptr, 0, std::atoi(ms));
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
