// SPDX-License-Identifier: Apache-2.0

// HashCache keeps hashes of files in a folder, so that a restarted worker does not read its data again. An
// entry is found by what the file system knows about the file (FilePool::Version); a file that was written
// since has another version. It does not see a change that leaves the times as they are, such as a bit that
// flips on the disk.
//
// Failures of the folder are not errors: the file is hashed again. Processes on several nodes may share it.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"
#include "worker/data/file_pool.h"

namespace ringmaster::data {

class HashCache {
 public:
  // Names one range of one version of a file.
  struct Key {
    std::string text;
    int64_t changed_ns = 0;  // the later one of the file's times
    int64_t looked_ns = 0;   // when the version was read
  };

  // Held while a file is hashed. Move-only; the destructor releases it.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&&) noexcept = default;
    Lock& operator=(Lock&&) noexcept = default;
    ~Lock();

   private:
    friend class HashCache;
    std::string path_;
    Fd fd_;  // invalid: not locked
  };

  // `folder` is created with the first entry; empty: there is no cache. `node` is part of the keys of files
  // on file systems that other nodes do not see.
  HashCache(std::string folder, std::string node);

  Key KeyOf(const FilePool::Version& version, uint64_t offset, uint64_t bytes) const;
  // Returns nullopt without an entry, and for a damaged one.
  std::optional<uint64_t> Find(const Key& key) const;
  // Keeps a hash, unless the file was written so shortly before its version was read that another write may
  // have the same time.
  void Put(const Key& key, uint64_t hash) const;
  // Waits until no other process holds the lock of this key, or for ten minutes, or until *cancel, which may
  // be null. Returns without the lock after that and on a file system without locks.
  Lock LockFor(const Key& key, const std::atomic<bool>* cancel) const;

 private:
  std::string PathOf(const Key& key) const;

  const std::string folder_;
  const std::string node_;
};

}  // namespace ringmaster::data
