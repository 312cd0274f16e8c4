// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/trainer_page.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/file.h"

namespace ringmaster::agent {

Result<TrainerPage> TrainerPage::Attach(int fd) {
  if (::syscall(SYS_gettid) != ::getpid()) {
    return Error{Code::kInternal, "the main thread must attach the shared page"};
  }
  struct stat about = {};
  if (::fstat(fd, &about) != 0) return ErrnoError(fmt::format("shared page fd {}", fd), errno);
  // The page of an older agent ends before the notice to leave; the rest of its memory page is zero.
  if (about.st_size < static_cast<off_t>(offsetof(SharedPage, leaving_since_ns))) {
    return Error{Code::kInvalid,
                 fmt::format("shared page fd {}: {} bytes are too few: the agent and the library of the "
                             "program must be of one release",
                             fd, about.st_size)};
  }
  void* memory = ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoError(fmt::format("map shared page fd {}", fd), errno);
  auto* page = static_cast<SharedPage*>(memory);
  if (page->magic != SharedPage::kMagic) {
    ::munmap(memory, sizeof(SharedPage));
    return Error{Code::kInvalid, fmt::format("shared page fd {}: created by another build", fd)};
  }
  if (const int why = ::pthread_mutex_trylock(&page->alive); why != 0) {
    ::munmap(memory, sizeof(SharedPage));
    return Error{Code::kConflict,
                 fmt::format("shared page fd {}: held by another process (error {})", fd, why)};
  }
  page->ready.store(1, std::memory_order_release);
  return TrainerPage(page);
}

void TrainerPage::AddStep(Duration busy, int32_t micro_batches) {
  const int64_t ns = std::max<int64_t>(busy.count(), 0);
  page_->micro_batches.store(micro_batches, std::memory_order_relaxed);
  if (ns > page_->longest_ns.load(std::memory_order_relaxed))
    page_->longest_ns.store(ns, std::memory_order_relaxed);
  page_->busy_ns.fetch_add(ns, std::memory_order_relaxed);
  page_->busy_steps.fetch_add(1, std::memory_order_release);
}

TrainerPage::TrainerPage(TrainerPage&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

}  // namespace ringmaster::agent
