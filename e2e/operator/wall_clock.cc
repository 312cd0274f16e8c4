// SPDX-License-Identifier: Apache-2.0

// A library for LD_PRELOAD that shifts the process's wall clock by the nanoseconds in a file: an int64 in the
// file that RINGMASTER_WALL_CLOCK names, read at each call. The steady clock is not changed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

const volatile int64_t* MapOffset() {
  static const int64_t kNone = 0;
  const char* const path = std::getenv("RINGMASTER_WALL_CLOCK");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &kNone;
  void* const page = ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return page == MAP_FAILED ? &kNone : static_cast<const volatile int64_t*>(page);
}

timespec Wall() {
  static const volatile int64_t* const offset = MapOffset();
  constexpr int64_t kSecond = 1'000'000'000;
  timespec now{};
  ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  const int64_t all = now.tv_sec * kSecond + now.tv_nsec + *offset;
  return {all / kSecond, all % kSecond};
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t id, timespec* at) noexcept {
  if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
    return static_cast<int>(::syscall(SYS_clock_gettime, id, at));
  *at = Wall();
  return 0;
}

int gettimeofday(timeval* __restrict at, void* __restrict) noexcept {
  const timespec now = Wall();
  *at = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* at) noexcept {
  const time_t now = Wall().tv_sec;
  if (at != nullptr) *at = now;
  return now;
}

}  // extern "C"
