// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/file.h"
#include "worker/fabric/shm/available_memory.h"

namespace ringmaster::fabric::shm {
namespace {

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<OwnMemory> AllocateShared(size_t bytes, std::string_view label) {
  constexpr size_t kPage = 4096;
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  const std::optional<AvailableMemory> available = ReadAvailableMemory();
  const auto exhausted = [&](std::string_view what, int error) {
    return Error{
        Code::kExhausted,
        fmt::format("shared memory for {}: {:.1f} MiB requested, {:.1f} MiB available by {} ({}: {}); raise "
                    "the worker's limits.memory",
                    label, MiB(bytes), available ? MiB(available->bytes) : 0.0,
                    available ? available->limit : "an unknown limit", what, std::strerror(error))};
  };
  // Otherwise missing memory would be noticed page by page, and the kernel would kill a process.
  if (size < bytes || (available && size > available->bytes)) return exhausted("not attempted", ENOMEM);

  OwnMemory memory;
  memory.fd = Fd(::memfd_create(std::string(label).c_str(), MFD_CLOEXEC));
  if (!memory.fd.valid()) return ErrnoError("memfd_create", errno);
  if (::ftruncate(memory.fd.get(), static_cast<off_t>(size)) != 0) return exhausted("ftruncate", errno);
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd.get(), 0);
  if (address == MAP_FAILED) return exhausted("mmap", errno);
  memory.mapping = Mapping(static_cast<std::byte*>(address), size);
  ::madvise(address, size, MADV_HUGEPAGE);  // a hint: fewer page faults for this process and its peers
#ifdef MADV_POPULATE_WRITE
  if (::madvise(address, size, MADV_POPULATE_WRITE) == 0) return memory;
  if (errno != EINVAL) return exhausted("populate", errno);
#endif
  // Older kernels: allocate the pages, then fill the page table.
  if (const int error = ::posix_fallocate(memory.fd.get(), 0, static_cast<off_t>(size)); error != 0)
    return exhausted("posix_fallocate", error);
  for (size_t at = 0; at < size; at += kPage)
    *reinterpret_cast<volatile std::byte*>(memory.mapping.data() + at) = {};
  return memory;
}

Result<Mapping> MapPeer(int64_t pid, const Segment& segment) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, segment.fd);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    const Error error = ErrnoError("open " + path, errno);
    return Error{error.code == Code::kNotFound ? Code::kUnavailable : error.code, error.message};
  }
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoError("stat " + path, errno);
  if (segment.bytes == 0 || static_cast<uint64_t>(info.st_size) != segment.bytes)
    return Error{Code::kUnavailable,
                 fmt::format("{}: {} bytes, not the announced {}", path, info.st_size, segment.bytes)};
  void* address = ::mmap(nullptr, segment.bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return ErrnoError("mmap " + path, errno);
  ::madvise(address, segment.bytes, MADV_HUGEPAGE);
  return Mapping(static_cast<std::byte*>(address), segment.bytes);
}

}  // namespace ringmaster::fabric::shm
