// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/checkpoint/faulty_calls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/sanitizers.h"

// Sanitizers take the place of these functions themselves.
#if !defined(RINGMASTER_ADDRESS_SANITIZER) && !defined(RINGMASTER_THREAD_SANITIZER)

namespace ringmaster::checkpoint {
namespace {

FaultHook& TheHook() {
  static FaultHook hook;
  return hook;
}

// Returns whether the call fails, with errno set.
bool Fails(const char* call, int fd) {
  if (TheHook() == nullptr) return false;
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  if (length <= 0) return false;
  const int error = TheHook()(call, std::string(path, static_cast<size_t>(length)));
  if (error != 0) errno = error;
  return error != 0;
}

template <class Function>
Function* Real(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  CHECK(found != nullptr, "{}", name);
  return found;
}

}  // namespace

FaultyCalls::FaultyCalls(FaultHook hook) {
  CHECK(TheHook() == nullptr);
  TheHook() = std::move(hook);
}

FaultyCalls::~FaultyCalls() { TheHook() = nullptr; }

}  // namespace ringmaster::checkpoint

// These take the place of the C library's functions in this program.
extern "C" {

ssize_t read(int fd, void* buffer, size_t count) {
  static auto* const real = ringmaster::checkpoint::Real<ssize_t(int, void*, size_t)>("read");
  return ringmaster::checkpoint::Fails("read", fd) ? -1 : real(fd, buffer, count);
}

int fsync(int fd) {
  static auto* const real = ringmaster::checkpoint::Real<int(int)>("fsync");
  return ringmaster::checkpoint::Fails("fsync", fd) ? -1 : real(fd);
}

int flock(int fd, int operation) noexcept {
  static auto* const real = ringmaster::checkpoint::Real<int(int, int)>("flock");
  return ringmaster::checkpoint::Fails("flock", fd) ? -1 : real(fd, operation);
}

int close(int fd) {
  static auto* const real = ringmaster::checkpoint::Real<int(int)>("close");
  const bool fails = ringmaster::checkpoint::Fails("close", fd);
  const int error = errno;
  const int closed = real(fd);  // Linux closes the file even if it reports an error
  if (fails) errno = error;
  return fails ? -1 : closed;
}
}

#endif
