// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda/nccl/area.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "base/file.h"

namespace ringmaster::nccl_emulation {

Result<std::shared_ptr<Area>> Area::Create() {
  Fd file(::memfd_create("emulated-nccl", MFD_CLOEXEC));
  if (!file.valid() || ::ftruncate(file.get(), kBytes) != 0) return ErrnoError("a memory file", errno);
  return Open(fmt::format("/proc/{}/fd/{}", ::getpid(), file.get()));
}

Result<std::shared_ptr<Area>> Area::Open(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return ErrnoError(path, errno);
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return ErrnoError(path, errno);
  return std::make_shared<Area>(std::move(file), static_cast<std::byte*>(memory));
}

Area::Area(Fd file, std::byte* memory) : file_(std::move(file)), memory_(memory) {}
Area::~Area() { ::munmap(memory_, kBytes); }

std::string Area::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get()); }

// std::atomic::wait works between threads of one process only.
void Area::NotifyChange() {
  ++head().changes;
  ::syscall(SYS_futex, &head().changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Area::AwaitChange(uint32_t seen) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  ::syscall(SYS_futex, &head().changes, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

}  // namespace ringmaster::nccl_emulation
