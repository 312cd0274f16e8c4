// SPDX-License-Identifier: Apache-2.0

// FileSystem makes the changes of a checkpoint to the disk, one call per change, so that tests can count,
// record and interrupt them. Reads do not use it.
//
// Errors name the path and, for a full disk or missing permissions, the remedy. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::checkpoint {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Status MakeFolder(const std::string& path) = 0;  // kAlreadyExists
  virtual Result<Fd> Create(const std::string& path) = 0;  // truncates an existing file
  virtual Status Write(const Fd& file, const std::string& path, std::span<const std::byte> bytes) = 0;
  virtual Status Sync(const Fd& file, const std::string& path) = 0;
  // Errors: a write that the file system delayed until now has failed.
  virtual Status Close(Fd file, const std::string& path);
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual Status Rename(const std::string& from,
                        const std::string& to) = 0;  // kAlreadyExists: `to` is not empty
  virtual Status RemoveFile(const std::string& path) = 0;
  virtual Status RemoveFolder(const std::string& path) = 0;  // REQUIRES: it is empty
};

// Returns the file system of the operating system.
FileSystem& PosixFiles();

}  // namespace ringmaster::checkpoint
