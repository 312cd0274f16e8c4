// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/slot_page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <memory>

#include "base/file.h"

namespace ringmaster::agent {
namespace {

int InitMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  if (const int why = ::pthread_mutexattr_init(&attributes); why != 0) return why;
  int why = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (why == 0) why = ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  if (why == 0) why = ::pthread_mutex_init(mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return why;
}

}  // namespace

Result<SlotPage> SlotPage::Create() {
  Fd fd(::memfd_create("ringmaster-slot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoError("create the shared slot", errno);
  if (::ftruncate(fd.get(), sizeof(Slot)) != 0) return ErrnoError("size the shared slot", errno);
  // A trainer that shrank the page would make our reads fault.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError("seal the shared slot", errno);
  }
  void* page = ::mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED) return ErrnoError("map the shared slot", errno);
  auto* slot = std::construct_at(static_cast<Slot*>(page));
  if (const int why = InitMutex(&slot->alive); why != 0) {
    ::munmap(page, sizeof(Slot));
    return ErrnoError("make the robust mutex", why);
  }
  slot->magic = Slot::kMagic;
  return SlotPage(std::move(fd), slot);
}

SlotPage::SlotPage(SlotPage&& other) noexcept
    : fd_(std::move(other.fd_)), slot_(std::exchange(other.slot_, nullptr)) {}

SlotPage::~SlotPage() {
  if (slot_ != nullptr) ::munmap(slot_, sizeof(Slot));
}

}  // namespace ringmaster::agent
