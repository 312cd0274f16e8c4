// SPDX-License-Identifier: Apache-2.0

// Simulates the disks of real clusters when preloaded into processes (LD_PRELOAD), for
// tests/process/faulty_disks.
//
//   FAULTY_DISK=SEED:PERCENT:KIND[,KIND...]   what happens to calls
//   FAULTY_FOLDER=PATH                        for files below this folder, which others do not share
//   FAULTY_LOG=PATH                           a line for each injected fault
//
// Kinds: of PERCENT of the calls
//   stale    open, read and stat of a file fail with ESTALE
//   eio      read, write and fsync fail with EIO
//   eintr    open, read, write and fsync fail with EINTR
//   nospace  write and close fail with ENOSPC, after the file has been written
//   quota    write fails with EDQUOT
//   short    read and write handle half of the bytes
//   late     open of a file in a folder that another process has renamed within 200 ms fails with ENOENT
//   slow     a call takes 50 ms longer
// and of all calls
//   nofsync  fsync fails with EINVAL
//   nolocks  flock fails with ENOSYS
//   readonly after a number of changes, every change fails with EROFS
//
// The seed, the process and the number of the call decide.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSlow_ms = 50;
constexpr int64_t kLate_ns = 200'000'000;

bool Has(const char* kind) {
  const char* const text = std::getenv("FAULTY_DISK");
  const char* const kinds = text == nullptr ? nullptr : std::strrchr(text, ':');
  if (kinds == nullptr) return false;
  const size_t length = std::strlen(kind);
  for (const char* at = kinds; at != nullptr; at = std::strchr(at + 1, ','))
    if (std::strncmp(at + 1, kind, length) == 0 && (at[1 + length] == ',' || at[1 + length] == '\0'))
      return true;
  return false;
}

uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t Random() {
  static std::atomic<uint64_t> calls{0};
  const char* const text = std::getenv("FAULTY_DISK");
  const uint64_t seed = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  return Mix(seed ^ Mix(static_cast<uint64_t>(::getpid()) << 32 ^ calls++));
}

bool Chosen() {
  const char* const text = std::getenv("FAULTY_DISK");
  const char* const percent = text == nullptr ? nullptr : std::strchr(text, ':');
  return percent != nullptr && Random() % 10000 < static_cast<uint64_t>(100 * std::atof(percent + 1));
}

bool Concerns(const char* path) {
  const char* const folder = std::getenv("FAULTY_FOLDER");
  return folder != nullptr && path != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

// Writes the path of `fd` into `path`, and returns whether it concerns this disk.
bool Concerns(int fd, char (&path)[4096]) {
  if (std::getenv("FAULTY_FOLDER") == nullptr) return false;
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::syscall(SYS_readlink, link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return Concerns(path);
}

void Note(const char* call, const char* path, const char* fault) {
  const char* const log = std::getenv("FAULTY_LOG");
  if (log == nullptr) return;
  char line[4400];
  const int length = std::snprintf(line, sizeof line, "%d %s %s %s\n", ::getpid(), call, fault, path);
  const long fd = ::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  (void)::syscall(SYS_write, fd, line, length);
  ::syscall(SYS_close, fd);
}

bool Fail(const char* call, const char* path, int error) {
  Note(call, path, ::strerrorname_np(error));
  errno = error;
  return true;
}

struct Choice {
  const char* kind;
  int error;
};
// Returns whether the call fails by one of the choices, with errno set.
template <size_t N>
bool Fails(const char* call, const char* path, const Choice (&choices)[N]) {
  if (Has("slow") && Chosen()) {
    Note(call, path, "slow");
    ::poll(nullptr, 0, kSlow_ms);
  }
  for (const Choice& choice : choices)
    if (Has(choice.kind) && Chosen()) return Fail(call, path, choice.error);
  return false;
}

// Returns whether a change fails, since the disk has become read-only.
bool IsReadOnly(const char* call, const char* path) {
  if (!Has("readonly")) return false;
  static std::atomic<bool> now{false};
  if (!now && Chosen()) now = true;
  return now && Fail(call, path, EROFS);
}

// The path of the last folder that this process renamed.
char renamed[4096];

bool IsLate(const char* path) {
  if (!Has("late")) return false;
  const char* const name = std::strrchr(path, '/');
  if (name == nullptr) return false;
  char folder[4096];
  std::snprintf(folder, sizeof folder, "%.*s", static_cast<int>(name - path), path);
  struct stat info {};
  if (std::strstr(folder, "/step-") == nullptr || std::strcmp(folder, renamed) == 0) return false;
  if (::syscall(SYS_newfstatat, AT_FDCWD, folder, &info, 0) != 0) return false;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age = (now.tv_sec - info.st_ctim.tv_sec) * 1'000'000'000 + now.tv_nsec - info.st_ctim.tv_nsec;
  return age < kLate_ns && Chosen() && Fail("open", path, ENOENT);
}

int OpenAt(int folder, const char* path, int flags, mode_t mode) {
  if (folder == AT_FDCWD && Concerns(path)) {
    if (Fails("open", path, {{"stale", ESTALE}, {"eintr", EINTR}}) || IsLate(path)) return -1;
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 && IsReadOnly("open", path)) return -1;
  }
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

size_t Half(const char* call, const char* path, size_t bytes) {
  if (bytes < 2 || !Has("short") || !Chosen()) return bytes;
  Note(call, path, "short");
  return bytes / 2;
}

bool ReadFails(int fd, size_t* bytes) {
  char path[4096];
  if (!Concerns(fd, path)) return false;
  if (Fails("read", path, {{"stale", ESTALE}, {"eio", EIO}, {"eintr", EINTR}})) return true;
  *bytes = Half("read", path, *bytes);
  return false;
}

bool WriteFails(int fd, size_t* bytes) {
  char path[4096];
  if (!Concerns(fd, path)) return false;
  if (Fails("write", path, {{"eio", EIO}, {"eintr", EINTR}, {"nospace", ENOSPC}, {"quota", EDQUOT}}))
    return true;
  if (IsReadOnly("write", path)) return true;
  *bytes = Half("write", path, *bytes);
  return false;
}

bool SyncFails(int fd) {
  char path[4096];
  if (!Concerns(fd, path)) return false;
  if (Has("nofsync")) return Fail("fsync", path, EINVAL);
  return Fails("fsync", path, {{"eio", EIO}, {"eintr", EINTR}});
}

bool ChangeFails(const char* call, const char* path) {
  return Concerns(path) && (Fails(call, path, {{"eio", EIO}}) || IsReadOnly(call, path));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return OpenAt(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return OpenAt(AT_FDCWD, path, flags, mode);
}

ssize_t read(int fd, void* buffer, size_t bytes) {
  return ReadFails(fd, &bytes) ? -1 : ::syscall(SYS_read, fd, buffer, bytes);
}

ssize_t pread64(int fd, void* buffer, size_t bytes, off_t offset) {
  return ReadFails(fd, &bytes) ? -1 : ::syscall(SYS_pread64, fd, buffer, bytes, offset);
}

ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) { return pread64(fd, buffer, bytes, offset); }

ssize_t write(int fd, const void* buffer, size_t bytes) {
  return WriteFails(fd, &bytes) ? -1 : ::syscall(SYS_write, fd, buffer, bytes);
}

ssize_t pwrite64(int fd, const void* buffer, size_t bytes, off_t offset) {
  return WriteFails(fd, &bytes) ? -1 : ::syscall(SYS_pwrite64, fd, buffer, bytes, offset);
}

ssize_t pwrite(int fd, const void* buffer, size_t bytes, off_t offset) {
  return pwrite64(fd, buffer, bytes, offset);
}

int fsync(int fd) { return SyncFails(fd) ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { return SyncFails(fd) ? -1 : static_cast<int>(::syscall(SYS_fdatasync, fd)); }

int close(int fd) {
  char path[4096];
  // Only of a file that can be written: a delayed write has failed.
  const bool writes = (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && Concerns(fd, path);
  const bool fails = writes && Has("nospace") && Chosen();
  const auto closed = static_cast<int>(::syscall(SYS_close, fd));  // Linux closes the file in any case
  if (fails) Fail("close", path, ENOSPC);
  return fails ? -1 : closed;
}

int flock(int fd, int operation) noexcept {
  char path[4096];
  if (Has("nolocks") && Concerns(fd, path) && Fail("flock", path, ENOSYS)) return -1;
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

int rename(const char* from, const char* to) noexcept {
  if (ChangeFails("rename", to)) return -1;
  const long outcome = ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
  if (outcome == 0 && Has("late") && Concerns(to)) std::snprintf(renamed, sizeof renamed, "%s", to);
  return static_cast<int>(outcome);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return ChangeFails("mkdir", path) ? -1 : static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int unlink(const char* path) noexcept {
  return ChangeFails("unlink", path) ? -1 : static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int ftruncate64(int fd, off_t length) noexcept {
  char path[4096];
  if (Concerns(fd, path) && IsReadOnly("truncate", path)) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, fd, length));
}

int ftruncate(int fd, off_t length) noexcept { return ftruncate64(fd, length); }

int stat(const char* path, struct stat* info) noexcept {
  if (Concerns(path) && Fails("stat", path, {{"stale", ESTALE}})) return -1;
  return static_cast<int>(::syscall(SYS_newfstatat, AT_FDCWD, path, info, 0));
}
}
