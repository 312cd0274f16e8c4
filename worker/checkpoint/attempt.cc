// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/attempt.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

constexpr size_t kMaxAttemptBytes = 4096;

std::string AttemptPath(const std::string& folder) { return folder + "/" + std::string(kAttemptName); }

}  // namespace

Result<std::string> TakeFolder(const std::string& folder, const std::string& member, Duration patience) {
  RM_TRY(MakeFolder(folder));
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return ErrnoError("getrandom", errno);
  const std::string attempt = fmt::format("{} {}", HashHex(number), member);
  // With the lock, no publication is between its look at the owner and its rename. A process that is stopped
  // there keeps the lock, and some file systems have none, so its rename must fail.
  const FolderLock lock(folder, patience);
  RM_TRY(WriteFileAtomic(AttemptPath(folder), attempt));
  RM_TRY(TakeTemporaries(&PosixFiles(), folder, HashHex(number)));
  lock.IgnoreHolder();
  return attempt;
}

void TakeFolderOrWarn(const std::string& folder, const std::string& member) {
  const auto taken = TakeFolder(folder, member);
  if (!taken.ok())
    log::Warn("checkpoint: {}; an older attempt of the job may still write to the folder",
              taken.error().message);
}

Result<std::string> OwnerOf(const std::string& folder) {
  auto text = ReadFile(AttemptPath(folder), kMaxAttemptBytes);
  if (!text.ok() && text.error().code == Code::kNotFound) return std::string();
  return text;
}

}  // namespace ringmaster::checkpoint
