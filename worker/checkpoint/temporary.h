// SPDX-License-Identifier: Apache-2.0

// Coordinates several processes in one checkpoint folder: the temporary folders in which checkpoints are
// written before they are published, the removal of those whose writer has died, and the lock for publishing
// and removing checkpoints.
//
// A writer holds an exclusive lock (flock) on the LOCK file in its temporary folder as long as it lives. A
// process may remove a temporary folder only while it holds that lock, so the folder of a live writer is
// never removed, however slow the writer is. On a file system without locks, only folders untouched for a day
// are removed.
//
// Only files that a writer creates are removed. Links to folders are never followed and never removed, and a
// folder in which a user has put something stays, without our files.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/checkpoint/file_system.h"

namespace ringmaster::checkpoint {

// FolderLock is held while a checkpoint is moved into place or removed, so that no writer verifies a
// checkpoint that another one is replacing. The constructor continues without the lock when the file system
// has no locks, or when the holder is stuck: a checkpoint is still either complete or absent, but a write may
// fail unnecessarily. Not movable.
class FolderLock {
 public:
  // `limit`: how long to wait for another holder.
  explicit FolderLock(const std::string& parent, Duration limit = seconds(10));
  // If the holder is stuck, lets later locks of the folder ignore it. REQUIRES: what the holder may still do
  // is harmless.
  void IgnoreHolder() const;
  // Returns whether the lock was not obtained, because the holder is stuck.
  bool stuck() const { return stuck_; }

 private:
  const std::string path_;
  Fd lock_;
  bool stuck_ = false;
};

// Temporary is a locked temporary folder. Move-only. The destructor releases the lock and removes nothing.
class Temporary {
 public:
  static Result<Temporary> Create(FileSystem* files, const std::string& parent, int64_t step,
                                  std::string_view unique);
  const std::string& path() const { return path_; }
  // Removes the folder and releases the lock.
  Status Remove(FileSystem* files);

 private:
  Temporary(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  Fd lock_;
};

// Removes a published checkpoint. It is first renamed to a temporary name, so that a partly removed
// checkpoint never looks complete, and so that Sweep completes the removal if this process dies. If it has
// files that no writer creates, it keeps its name and those files, and loses its MANIFEST first. A link
// stays.
Status Discard(FileSystem* files, const std::string& parent, int64_t step, std::string_view unique);

// Returns whether there is something in `parent` that Discard would remove of this step.
bool IsDiscardable(const std::string& parent, int64_t step);

// Returns whether the path is a folder, and no link to one, that is empty or has a file that a writer
// creates.
bool IsOfWriter(const std::string& folder);

// Returns whether a process that lives writes in a temporary folder.
bool HasLiveWriter(const std::string& folder);

// Removes our files in a folder, and the folder, if nothing else is in it; succeeds if it does not exist.
// `lock`, if not null, is that of the folder's LOCK. It is closed before the folder is removed: NFS keeps a
// removed file under another name as long as it is open.
Status RemoveWithFiles(FileSystem* files, const std::string& path, Fd* lock = nullptr);

// Removes temporary folders of dead writers, as far as possible.
void Sweep(FileSystem* files, const std::string& parent);

// Takes all temporary folders away from their writers, dead or alive. A writer cannot publish what it has in
// such a folder, not even if it has checked that it may, and only its rename is left: the rename fails.
Status TakeTemporaries(FileSystem* files, const std::string& parent, std::string_view unique);

}  // namespace ringmaster::checkpoint
