// SPDX-License-Identifier: Apache-2.0

// Simulates a slow, failing or full disk when preloaded into a process (LD_PRELOAD).
// Files in a folder "checkpoints":
//   SLOW_DISK_MS  milliseconds by which each fsync takes longer
//   SLOW_OPEN_MS  milliseconds by which the check of the access to that folder takes longer
//   SLOW_READ_MS  milliseconds by which each read of a chunk takes longer
//   SLOW_LIST_MS  milliseconds by which the first read of a manifest in each process takes longer
//   FULL_DISK     while this file exists, each write fails with ENOSPC
// Reads at an offset (pread) in a folder "slow-data", counted from 0 in each process:
//   SLOW_DATA=FIRST:N:MS   N reads from FIRST on take MS milliseconds longer
//   EIO_DATA=FIRST:N       N reads from FIRST on fail with EIO
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// Returns whether the path of `fd` contains `folder` and `part`.
bool IsIn(const char* folder, int fd, const char* part) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return std::strstr(path, folder) != nullptr && std::strstr(path, part) != nullptr;
}

bool InCheckpoint(int fd, const char* part) { return IsIn("/checkpoints/", fd, part); }

int Milliseconds(const char* variable) {
  const char* const ms = std::getenv(variable);
  return ms == nullptr ? 0 : std::atoi(ms);
}

// Returns whether `variable` selects read `number`, and its milliseconds.
bool Selects(const char* variable, int number, int* ms) {
  const char* const text = std::getenv(variable);
  int first = 0;
  int count = 0;
  *ms = 0;
  if (text == nullptr || std::sscanf(text, "%d:%d:%d", &first, &count, ms) < 2) return false;
  return number >= first && number < first + count;
}

}  // namespace

extern "C" int access(const char* path, int mode) noexcept {
  const int ms = Milliseconds("SLOW_OPEN_MS");
  if (ms > 0 && std::strstr(path, "/checkpoints") != nullptr) ::poll(nullptr, 0, ms);
  return static_cast<int>(::syscall(SYS_faccessat, AT_FDCWD, path, mode));
}

extern "C" int fsync(int fd) {
  const int ms = Milliseconds("SLOW_DISK_MS");
  if (ms > 0 && InCheckpoint(fd, "")) ::poll(nullptr, 0, ms);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" ssize_t read(int fd, void* buffer, size_t bytes) {
  const int ms = Milliseconds("SLOW_READ_MS");
  if (ms > 0 && InCheckpoint(fd, "/chunk-")) ::poll(nullptr, 0, ms);
  static std::atomic<bool> listed{false};
  const int list_ms = Milliseconds("SLOW_LIST_MS");
  if (list_ms > 0 && InCheckpoint(fd, "/MANIFEST") && !listed.exchange(true)) ::poll(nullptr, 0, list_ms);
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

extern "C" ssize_t pread64(int fd, void* buffer, size_t bytes, off_t offset) {
  if (IsIn("/slow-data/", fd, "")) {
    static std::atomic<int> reads{0};
    const int number = reads++;
    int ms = 0;
    if (Selects("SLOW_DATA", number, &ms)) ::poll(nullptr, 0, ms);
    if (Selects("EIO_DATA", number, &ms)) {
      errno = EIO;
      return -1;
    }
  }
  return ::syscall(SYS_pread64, fd, buffer, bytes, offset);
}

extern "C" ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  return pread64(fd, buffer, bytes, offset);
}
