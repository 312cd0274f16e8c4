// SPDX-License-Identifier: Apache-2.0

// Coordinates several processes in one checkpoint folder: the temporary folders in which checkpoints are
// written before they are published, the removal of those whose writer has died, and the lock for publishing
// and removing checkpoints.
//
// A writer holds an exclusive lock (flock) on the LOCK file in its temporary folder as long as it lives. A
// process may remove a temporary folder only while it holds that lock, so the folder of a live writer is
// never removed, however slow the writer is. On a file system without locks, only folders untouched for a day
// are removed.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "worker/checkpoint/file_system.h"

namespace ringmaster::checkpoint {

// FolderLock is held while a checkpoint is moved into place or removed, so that no writer verifies a
// checkpoint that another one is replacing. The constructor continues without the lock when the file system
// has no locks, or when the holder is stuck: a checkpoint is still either complete or absent, but a write may
// fail unnecessarily. Move-only.
class FolderLock {
 public:
  explicit FolderLock(const std::string& parent);

 private:
  Fd lock_;
};

// Temporary is a locked temporary folder. Move-only. The destructor releases the lock and removes nothing.
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

// Removes a published checkpoint. It is first renamed to a temporary name, so that a partly removed
// checkpoint never looks complete, and so that Sweep completes the removal if this process dies.
Status Discard(FileSystem* files, const std::string& parent, int64_t step, std::string_view unique);

// Removes a folder and the files in it; succeeds if it does not exist.
Status RemoveWithFiles(FileSystem* files, const std::string& path);

// Removes temporary folders of dead writers, as far as possible.
void Sweep(FileSystem* files, const std::string& parent);

}  // namespace ringmaster::checkpoint
