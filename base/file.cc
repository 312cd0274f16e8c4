// SPDX-License-Identifier: Apache-2.0

#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/open_file.h"

namespace ringmaster {
Error ErrnoError(std::string_view what, int error_number) {
  Code code = Code::kUnavailable;
  switch (error_number) {
    case ENOENT:
      code = Code::kNotFound;
      break;
    case EEXIST:
    case ENOTEMPTY:
      code = Code::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::kForbidden;
      break;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      code = Code::kExhausted;
      break;
    case EISDIR:
    case ENOTDIR:
    case EINVAL:
      code = Code::kInvalid;
      break;
    default:
      break;
  }
  return {code, fmt::format("{}: {}", what, std::strerror(error_number))};
}

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  Fd fd = OpenFile(path, O_RDONLY);
  if (!fd.valid()) return ErrnoError("open " + path, errno);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("read " + path, errno);
    if (got == 0) return text;
    if (text.size() + static_cast<size_t>(got) > max_bytes) {
      return Error{Code::kExhausted, fmt::format("{}: larger than {} bytes", path, max_bytes)};
    }
    text.append(buffer, static_cast<size_t>(got));
  }
}

Status WriteAll(const Fd& file, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoError("write " + path, errno);
    if (put == 0) return ErrnoError("write " + path, ENOSPC);  // it would repeat for ever
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return Ok();
}

Status EndTornLine(const Fd& file, const std::string& path) {
  const Fd reader = OpenFile(path, O_RDONLY);
  if (!reader.valid()) return ErrnoError("open " + path, errno);
  const off_t size = ::lseek(reader.get(), 0, SEEK_END);
  if (size <= 0) return Ok();
  char last = '\n';
  if (WithoutInterrupts([&] { return ::pread(reader.get(), &last, 1, size - 1); }) != 1)
    return ErrnoError("read " + path, errno);
  return last == '\n' ? Ok() : WriteAll(file, path, std::as_bytes(std::span("\n", 1)));
}

bool HasNoFsync(int error_number) {
  return error_number == EINVAL || error_number == ENOSYS || error_number == EOPNOTSUPP;
}

Status FsyncFile(const Fd& file, const std::string& path) {
  if (WithoutInterrupts([&] { return ::fsync(file.get()); }) == 0) return Ok();
  if (HasNoFsync(errno)) return Ok();
  return ErrnoError("fsync " + path, errno);
}

Status CloseFile(Fd file, const std::string& path) {
  // Linux closes the descriptor whatever close returns, so an interrupted close is not repeated.
  if (::close(file.Release()) == 0 || errno == EINTR) return Ok();
  return ErrnoError("close " + path, errno);
}

Status WriteFileDurable(const std::string& path, std::span<const std::byte> bytes) {
  Fd fd = OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!fd.valid()) return ErrnoError("create " + path, errno);
  RM_TRY(WriteAll(fd, path, bytes));
  RM_TRY(FsyncFile(fd, path));
  return CloseFile(std::move(fd), path);
}

Status FsyncFolder(const std::string& path) {
  const Fd fd = OpenFile(path, O_RDONLY | O_DIRECTORY);
  if (!fd.valid()) return ErrnoError("open " + path, errno);
  return FsyncFile(fd, path);
}

Status WriteFileAtomic(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  if (Status written = WriteFileDurable(temporary, std::as_bytes(std::span(text.data(), text.size())));
      !written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    return ErrnoError("rename to " + path, error_number);
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return FsyncFolder(parent.empty() ? "." : parent);
}

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoError("create folder " + path, error.value());
  if (::access(path.c_str(), W_OK | X_OK) != 0) return ErrnoError("write to folder " + path, errno);
  return Ok();
}

}  // namespace ringmaster
