// SPDX-License-Identifier: Apache-2.0

// FilePool reads the files of a data set with explicit reads. Files are not mapped: a page fault on slow
// storage would stop a thread without a word, and one behind the end of a truncated file raises SIGBUS.
//
// Files that fit into a common limit are copied into memory when they are added. Of the others, a limited
// number is open at a time. A file keeps the size that it had when it was added: what is appended later is
// ignored. A file that was written or replaced since then is compared with what it was: by its ends, and by
// its whole content if that is known (SetContent). Of a file that grows, the whole content is compared only
// once: a program that appends to it would otherwise cause a comparison for each of its writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {

class FilePool {
 public:
  struct Limits {
    uint64_t held_bytes = uint64_t{64} << 20;  // of all files that are held in memory
    size_t open_files = 256;
  };

  FilePool() : FilePool(Limits{}) {}
  explicit FilePool(const Limits& limits) : limits_(limits) {}
  FilePool(const FilePool&) = delete;
  FilePool& operator=(const FilePool&) = delete;

  // Adds a file and returns its number. An empty file is no error. Errors: kNotFound; kForbidden; kInvalid
  // when it is not a regular file; as Read. Not thread-safe.
  Result<size_t> Add(const std::string& path);
  // Replaces the bytes of a file by others, which stay in memory whatever the limit is (a compressed file and
  // its content). Not thread-safe.
  void Replace(size_t file, std::vector<std::byte> bytes);

  size_t count() const { return files_.size(); }
  const std::string& path(size_t file) const { return files_[file].path; }
  uint64_t size(size_t file) const { return files_[file].size; }
  bool held(size_t file) const { return files_[file].held; }

  // Returns the `bytes` bytes from `offset` on: of the pool if the file is held, otherwise read into
  // `buffer`. REQUIRES: they are within the size of the file. Errors: kUnavailable when the storage fails,
  // which may pass; kCorrupt when the file was truncated or replaced by other content since it was added;
  // kCancelled when *cancel is set during a comparison. Thread-safe.
  Result<std::span<const std::byte>> View(size_t file, uint64_t offset, size_t bytes,
                                          std::vector<std::byte>* buffer,
                                          const std::atomic<bool>* cancel = nullptr) const;

  // What a file system knows about a file: while all of it is the same, so is the content (HashCache).
  struct Version {
    uint64_t file_system = 0;  // 0: it has no number
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t size = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    uint64_t ends = 0;    // hash of both ends: some network file systems number files again at each mount
    bool shared = false;  // a network file system: other nodes see the same inode and times
    bool operator==(const Version&) const = default;
  };
  // Returns the present version of a file. REQUIRES: it is not held. Errors: as View. Thread-safe.
  Result<Version> CurrentVersion(size_t file, const std::atomic<bool>* cancel = nullptr) const;

  // The hash of a range of a file (HashBlocks of Hash64).
  struct Content {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t hash = 0;
  };
  // Makes the content known. Thread-safe.
  void SetContent(size_t file, const Content& content) const;

  // The comparisons of changed files, which take minutes if a file is large. Thread-safe.
  Comparison* comparison() const { return &comparison_; }

  // Asks the kernel to read a range soon. Compares nothing: of a changed file, nothing is announced.
  // Thread-safe.
  void Announce(size_t file, uint64_t offset, uint64_t bytes) const;

 private:
  // What distinguishes one file from another under the same path.
  struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t changed_s = 0;
    int64_t changed_ns = 0;
    uint64_t size = 0;
    bool operator==(const Identity&) const = default;
    // Returns whether this is the other file, which has grown: it is being appended to.
    bool HasGrownFrom(const Identity& other) const {
      return device == other.device && inode == other.inode && size > other.size;
    }
  };
  struct File {
    std::string path;
    uint64_t size = 0;
    uint64_t ends = 0;  // hash of both ends
    bool held = false;
    std::vector<std::byte> bytes;  // if held
  };
  struct Open {
    std::shared_ptr<const Fd> fd;  // null: not open
    std::list<size_t>::iterator use;
    // Of the file that was last found to have the content, and the one before: a file system that rounds
    // times on some calls only must not cause a comparison for each read.
    Identity identity;
    Identity earlier;
    std::optional<Identity> rejected;  // of the file that was last found to have other content
    std::optional<Content> content;
    bool compared_grown = false;  // the whole content, after the file had grown
    bool comparing = false;       // a thread does; others wait for its verdict
  };
  // An open file.
  struct Candidate {
    std::shared_ptr<const Fd> fd;
    Identity identity;
    bool known = false;  // whether it has the content, or a read will return the error
  };

  // Returns the file, opened again if necessary. Compares nothing.
  Result<Candidate> Find(size_t file) const;
  // Returns the file, which was compared with what it was.
  Result<std::shared_ptr<const Fd>> Acquire(size_t file, const std::atomic<bool>* cancel) const;
  // Becomes the thread that compares, after it has waited for another one. Returns false if that one has
  // found this file to have the content. Errors: kCorrupt if it has found other content; see Interrupted.
  Result<bool> BeginComparison(size_t file, const Identity& now, const std::atomic<bool>* cancel) const;
  void EndComparison(size_t file, const Identity& now, const Status& verdict) const;
  // Errors: kCancelled when *cancel is set; kUnavailable when comparisons end early.
  Status Interrupted(size_t file, const std::atomic<bool>* cancel) const;
  void Keep(size_t file, std::shared_ptr<const Fd> fd, const Identity& identity) const;
  void Close(size_t file) const;
  // Errors: kCorrupt when the open file has other content than the file that was added.
  Status Compare(size_t file, int fd, const Identity& now, const std::atomic<bool>* cancel) const;
  static Result<Identity> IdentityOf(int fd, const std::string& path);
  static Status Read(int fd, const File& file, uint64_t offset, std::span<std::byte> out);
  static Result<uint64_t> HashEnds(int fd, const File& file);

  const Limits limits_;
  uint64_t held_bytes_ = 0;
  std::vector<File> files_;
  mutable Comparison comparison_;
  mutable Mutex mutex_;
  mutable CondVar compared_;
  mutable std::vector<Open> open_ RM_GUARDED_BY(mutex_);    // by file
  mutable std::list<size_t> recent_ RM_GUARDED_BY(mutex_);  // the open files, last used first
};

}  // namespace ringmaster::data
