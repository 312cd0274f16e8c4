// SPDX-License-Identifier: Apache-2.0

#include "worker/data/file_view.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "base/file.h"

namespace ringmaster::data {
namespace {

constexpr size_t kMapFrom = size_t{256} << 10;

}  // namespace

Error Problem(Code code, const std::string& path, const std::string& reason, const std::string& remedy) {
  return {code, fmt::format("{}: {}; {}", path, reason, remedy)};
}

Result<FileView> FileView::Open(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const int why = errno;
    const char* remedy =
        why == ENOENT ? "check the path, as the worker sees it" : "make it readable for the worker";
    return Problem(ErrnoError("", why).code, path, std::strerror(why), remedy);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoError("stat " + path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Problem(Code::kInvalid, path, S_ISDIR(info.st_mode) ? "is a folder" : "is not a regular file",
                   "give a file");
  }
  FileView view;
  view.path_ = path;
  const auto size = static_cast<size_t>(info.st_size);
  if (size >= kMapFrom) {
    void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (at == MAP_FAILED) return ErrnoError("map " + path, errno);
    view.mapped_ = {static_cast<const std::byte*>(at), size};
    return view;
  }
  view.copy_.resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd.get(), view.copy_.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("read " + path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  view.copy_.resize(done);
  return view;
}

FileView::FileView(FileView&& other) noexcept
    : path_(std::move(other.path_)),
      mapped_(std::exchange(other.mapped_, {})),
      copy_(std::move(other.copy_)) {}

FileView& FileView::operator=(FileView&& other) noexcept {
  if (this != &other) {
    std::swap(path_, other.path_);
    std::swap(mapped_, other.mapped_);
    std::swap(copy_, other.copy_);
  }
  return *this;
}

FileView::~FileView() {
  if (!mapped_.empty()) ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
}

}  // namespace ringmaster::data
