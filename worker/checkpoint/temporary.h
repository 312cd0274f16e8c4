// SPDX-License-Identifier: Apache-2.0

// How several processes work in one checkpoint folder: the folders that checkpoints are written in before
// they are published, what becomes of them when their writer dies, and the lock under which checkpoints are
// put into place and removed.
//
// A writer holds an exclusive lock (flock) on the LOCK file in its folder as long as it lives. A folder whose
// lock can be taken has no writer: it may be removed. Both sides keep to that, so a live writer's folder is
// never removed, however slow it is. Where the file system has no locks, only folders untouched for a day are
// removed.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "worker/checkpoint/file_system.h"

namespace ringmaster::checkpoint {

// Held while a checkpoint is moved into place or removed, so that no writer judges what another one is just
// replacing. Without it (a file system without locks, or a holder that stands still for longer than the wait)
// work goes on: a checkpoint is whole or not there in any case, only a write may fail in vain. Move-only.
class FolderLock {
 public:
  explicit FolderLock(const std::string& parent);

 private:
  Fd lock_;
};

// Move-only. Destruction releases the lock; it removes nothing.
class Temporary {
 public:
  static Result<Temporary> Create(FileSystem* files, const std::string& parent, int64_t step,
                                  std::string_view unique);
  const std::string& path() const { return path_; }

 private:
  Temporary(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  Fd lock_;
};

// Removes a published checkpoint: first it gets a temporary name, in one call, so that it never looks whole
// when only half of it is left, and so that a sweeper ends the work if we die in the middle.
Status Discard(FileSystem* files, const std::string& parent, int64_t step, std::string_view unique);

// Removes a folder and the files in it; that it is gone already is fine.
Status RemoveWithFiles(FileSystem* files, const std::string& path);

// Removes temporary folders whose writers are dead. What cannot be removed is left for the next time.
void Sweep(FileSystem* files, const std::string& parent);

}  // namespace ringmaster::checkpoint
