// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/open_file.h"
#include "base/time.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {
namespace {

constexpr int kAttempts = 16;
constexpr time_t kStaleWithoutLocks_s = 24 * 60 * 60;

enum class Lock { kTaken, kHeldByAnother, kUnsupported };

Lock TryLock(const Fd& file, int kind = LOCK_EX) {
  while (::flock(file.get(), kind | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK ? Lock::kHeldByAnother : Lock::kUnsupported;
  }
  return Lock::kTaken;
}

// Returns whether the path is a folder, and no link to one.
bool IsRealFolder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status GoneIsFine(const Status& removed) {
  return removed.ok() || removed.error().code == Code::kNotFound ? Ok() : removed;
}

bool HasForeignFiles(const std::string& folder) {
  const std::vector<std::string> names = NamesIn(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return !IsOurFile(name) && !IsSillyName(name); });
}

// Returns whether the open file is still the one at this path.
bool StillThere(const Fd& file, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(file.get(), &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

bool UntouchedForLong(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && info.st_mtime + kStaleWithoutLocks_s < ::time(nullptr);
}

bool MayRemove(const Fd& lock, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kLockName);
  switch (TryLock(lock)) {
    case Lock::kTaken:
      return StillThere(lock, path);  // otherwise it was published, or another process removed it
    case Lock::kHeldByAnother:
      return false;
    case Lock::kUnsupported:
      break;
  }
  return UntouchedForLong(folder);
}

}  // namespace

FolderLock::FolderLock(const std::string& parent, Duration limit)
    : path_(parent + "/" + std::string(kFolderLockName)) {
  const Time deadline = Now() + limit;
  while (true) {
    lock_ = OpenFile(path_, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (!lock_.valid()) return;
    const Lock locked = TryLock(lock_);
    // Another process may have removed the file, to ignore its holder.
    if (locked == Lock::kUnsupported || (locked == Lock::kTaken && StillThere(lock_, path_))) return;
    if (Now() >= deadline) break;
    std::this_thread::sleep_for(milliseconds(2));
  }
  stuck_ = true;
  log::Warn("checkpoint: another writer has locked {} for {} s; not waiting any longer", parent,
            ToSeconds(limit));
}

void FolderLock::IgnoreHolder() const {
  if (stuck_) ::unlink(path_.c_str());
}

Result<Temporary> Temporary::Create(FileSystem* files, const std::string& parent, int64_t step,
                                    std::string_view unique) {
  // A retry is needed when an earlier process of the same name left a folder of this name, or when Sweep in
  // another process locked the new folder first.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string suffix = attempt == 0 ? "" : fmt::format("-{}", attempt);
    const std::string path = parent + "/" + TemporaryName(step, std::string(unique) + suffix);
    const Status made = files->MakeFolder(path);
    if (!made.ok() && made.error().code == Code::kAlreadyExists) continue;
    RM_TRY(made);
    const std::string lock_path = path + "/" + std::string(kLockName);
    auto lock = files->Create(lock_path);
    if (!lock.ok() && lock.error().code == Code::kNotFound) continue;
    RM_TRY(lock.ok() ? Ok() : Status(lock.error()));
    const Lock locked = TryLock(*lock);
    if (locked == Lock::kHeldByAnother || !StillThere(*lock, lock_path)) continue;
    return Temporary(path, std::move(*lock));
  }
  return Error{
      Code::kUnavailable,
      fmt::format("{}: no free name for a temporary folder; remove the step-*.tmp-* folders", parent)};
}

Status Temporary::Remove(FileSystem* files) { return RemoveWithFiles(files, path_, &lock_); }

Status RemoveWithFiles(FileSystem* files, const std::string& path, Fd* lock) {
  const std::string lock_path = path + "/" + std::string(kLockName);
  // First the manifest: without it, the rest is no checkpoint. Last the lock: while it exists and is locked,
  // no other process touches this folder.
  for (const bool manifest : {true, false}) {
    for (const std::string& name : NamesIn(path)) {
      if (!IsOurFile(name) || name == kLockName || (name == kManifestName) != manifest) continue;
      RM_TRY(GoneIsFine(files->RemoveFile(path + "/" + name)));
    }
  }
  RM_TRY(GoneIsFine(files->RemoveFile(lock_path)));
  if (lock != nullptr) lock->Reset();
  if (HasForeignFiles(path)) return Ok();
  const Status removed = files->RemoveFolder(path);
  // Since then, Sweep in another process may have created the lock again. It then holds it, and removes the
  // folder. A file that a process still has open keeps the folder on NFS; a later sweep removes it.
  const std::vector<std::string> left = NamesIn(path);
  const bool later = std::all_of(left.begin(), left.end(),
                                 [](const auto& name) { return name == kLockName || IsSillyName(name); });
  if (!removed.ok() && removed.error().code == Code::kAlreadyExists && later) return Ok();
  return GoneIsFine(removed);
}

bool IsOfWriter(const std::string& folder) {
  if (!IsRealFolder(folder)) return false;
  const std::vector<std::string> names = NamesIn(folder);
  return names.empty() || std::any_of(names.begin(), names.end(), IsOurFile);
}

bool HasLiveWriter(const std::string& folder) {
  const Fd lock = OpenFile(folder + "/" + std::string(kLockName), O_RDONLY | O_NOFOLLOW);
  if (!lock.valid()) return false;
  // A shared lock, for a moment: a sweep in another process leaves the folder to a later one.
  const Lock locked = TryLock(lock, LOCK_SH);
  return locked == Lock::kHeldByAnother || (locked == Lock::kUnsupported && !UntouchedForLong(folder));
}

bool IsDiscardable(const std::string& parent, int64_t step) {
  return IsOfWriter(parent + "/" + StepName(step));
}

Status Discard(FileSystem* files, const std::string& parent, int64_t step, std::string_view unique) {
  const std::string from = parent + "/" + StepName(step);
  if (!IsDiscardable(parent, step)) return Ok();
  if (HasForeignFiles(from)) return RemoveWithFiles(files, from);
  Status moved = Ok();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string to = parent + "/" + TemporaryName(step, fmt::format("{}-old-{}", unique, attempt));
    moved = files->Rename(from, to);
    if (moved.ok()) return RemoveWithFiles(files, to);
    if (moved.error().code == Code::kNotFound) return Ok();
    if (moved.error().code != Code::kAlreadyExists) break;
  }
  return moved;
}

void Sweep(FileSystem* files, const std::string& parent) {
  for (const std::string& name : NamesIn(parent)) {
    if (!IsTemporaryName(name)) continue;
    const std::string folder = parent + "/" + name;
    if (!IsOfWriter(folder)) continue;
    const std::string lock_path = folder + "/" + std::string(kLockName);
    // O_CREAT: a writer that has created the folder, but not yet its lock, finds it locked and takes another
    // name.
    Fd lock = OpenFile(lock_path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (!lock.valid() || !MayRemove(lock, folder)) continue;
    const Status removed = RemoveWithFiles(files, folder, &lock);
    (void)removed;  // the next sweep tries again
  }
}

Status TakeTemporaries(FileSystem* files, const std::string& parent, std::string_view unique) {
  Status outcome;
  for (const std::string& name : NamesIn(parent)) {
    const std::string from = parent + "/" + name;
    if (!IsTemporaryName(name) || !IsRealFolder(from)) continue;
    const std::string to = parent + "/" + TemporaryName(0, fmt::format("{}-taken-{}", unique, name));
    const Status moved = files->Rename(from, to);
    if (!moved.ok() && moved.error().code != Code::kNotFound) outcome = moved;
    if (!moved.ok() || !IsRealFolder(to)) continue;
    const Status removed = RemoveWithFiles(files, to);
    (void)removed;  // a sweep tries again when the writer has ended
  }
  return outcome;
}

}  // namespace ringmaster::checkpoint
