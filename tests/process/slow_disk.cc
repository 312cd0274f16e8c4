// Preloaded into a process (LD_PRELOAD), makes it wait for the disk: each fsync of what belongs to a
// checkpoint takes as many milliseconds as SLOW_DISK_MS says.
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

extern "C" int fsync(int fd) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  const char* const ms = ::getenv("SLOW_DISK_MS");
  if (ms != nullptr && length > 0) {
    path[length] = '\0';
    const long wait_ms = std::strtol(ms, nullptr, 10);
    const timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1'000'000};
    if (std::strstr(path, "/checkpoints/") != nullptr) ::nanosleep(&wait, nullptr);
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
