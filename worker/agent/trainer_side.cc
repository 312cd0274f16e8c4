// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer_side.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"

namespace ringmaster::agent {

Result<TrainerSlot> TrainerSlot::Attach(int fd) {
  if (::syscall(SYS_gettid) != ::getpid()) {
    return Error{Code::kInternal, "the agent's slot must be taken by the main thread"};
  }
  struct stat about = {};
  if (::fstat(fd, &about) != 0) return ErrnoError(fmt::format("slot fd {}", fd), errno);
  if (about.st_size < static_cast<off_t>(sizeof(Slot))) {
    return Error{Code::kInvalid, fmt::format("slot fd {}: {} bytes are too few", fd, about.st_size)};
  }
  void* page = ::mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return ErrnoError(fmt::format("map slot fd {}", fd), errno);
  auto* slot = static_cast<Slot*>(page);
  if (slot->magic != Slot::kMagic) {
    ::munmap(page, sizeof(Slot));
    return Error{Code::kInvalid, fmt::format("slot fd {}: made by another build", fd)};
  }
  if (const int why = ::pthread_mutex_trylock(&slot->alive); why != 0) {
    ::munmap(page, sizeof(Slot));
    return Error{Code::kConflict, fmt::format("slot fd {}: taken by another process (error {})", fd, why)};
  }
  slot->ready.store(1, std::memory_order_release);
  return TrainerSlot(slot);
}

TrainerSlot::TrainerSlot(TrainerSlot&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}

}  // namespace ringmaster::agent
