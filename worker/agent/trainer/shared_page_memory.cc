// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/shared_page_memory.h"

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

Result<SharedPageMemory> SharedPageMemory::Create() {
  Fd fd(::memfd_create("ringmaster-slot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoError("create the shared page", errno);
  if (::ftruncate(fd.get(), sizeof(SharedPage)) != 0) return ErrnoError("size the shared page", errno);
  // If a trainer shrank the memfd, the agent's reads would fault.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError("seal the shared page", errno);
  }
  void* memory = ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return ErrnoError("map the shared page", errno);
  auto* page = std::construct_at(static_cast<SharedPage*>(memory));
  if (const int why = InitMutex(&page->alive); why != 0) {
    ::munmap(memory, sizeof(SharedPage));
    return ErrnoError("make the robust mutex", why);
  }
  page->magic = SharedPage::kMagic;
  return SharedPageMemory(std::move(fd), page);
}

SharedPageMemory::SharedPageMemory(SharedPageMemory&& other) noexcept
    : fd_(std::move(other.fd_)), page_(std::exchange(other.page_, nullptr)) {}

SharedPageMemory::~SharedPageMemory() {
  if (page_ != nullptr) ::munmap(page_, sizeof(SharedPage));
}

}  // namespace ringmaster::agent
