// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file.h"
#include "base/open_file.h"

namespace ringmaster::checkpoint {
namespace {

Error Explain(const std::string& what, int error_number) {
  Error error = ErrnoError(what, error_number);
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      error.message += "; free space there, or keep checkpoints on another volume";
      break;
    case EFBIG:
      error.code = Code::kExhausted;
      error.message += "; raise the limit on file sizes (ulimit -f)";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      error.message += "; make the folder writable for the worker, or choose another folder";
      break;
    default:
      break;
  }
  return error;
}

class Posix final : public FileSystem {
 public:
  Status MakeFolder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) return Explain("create folder " + path, errno);
    return Ok();
  }

  Result<Fd> Create(const std::string& path) override {
    Fd file = OpenFile(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
    if (!file.valid()) return Explain("create " + path, errno);
    return file;
  }

  Status Write(const Fd& file, const std::string& path, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return Explain("write " + path, put == 0 ? ENOSPC : errno);
      bytes = bytes.subspan(static_cast<size_t>(put));
    }
    return Ok();
  }

  Status Sync(const Fd& file, const std::string& path) override {
    int outcome = 0;
    while ((outcome = ::fsync(file.get())) != 0 && errno == EINTR) {
    }
    if (outcome != 0 && !HasNoFsync(errno)) return Explain("fsync " + path, errno);
    return Ok();
  }

  Status Close(Fd file, const std::string& path) override {
    // Linux closes the descriptor whatever close returns, so an interrupted close is not repeated.
    if (::close(file.Release()) != 0 && errno != EINTR) return Explain("close " + path, errno);
    return Ok();
  }

  Status SyncFolder(const std::string& path) override { return FsyncFolder(path); }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return Explain("rename " + from + " to " + to, errno);
    return Ok();
  }

  Status RemoveFile(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return Explain("remove " + path, errno);
    return Ok();
  }

  Status RemoveFolder(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return Explain("remove " + path, errno);
    return Ok();
  }
};

}  // namespace

Status FileSystem::Close(Fd file, const std::string& path) { return CloseFile(std::move(file), path); }

FileSystem& PosixFiles() {
  static Posix files;
  return files;
}

}  // namespace ringmaster::checkpoint
