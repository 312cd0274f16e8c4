// SPDX-License-Identifier: Apache-2.0

// The changes that a checkpoint makes to the disk, one call each: where tests count, record and interrupt
// them. Reading does not pass through here.
//
// Errors name the path, and for a full disk or a missing right what to do. Stateless; any thread.
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
  virtual Result<Fd> Create(const std::string& path) = 0;  // emptied when it is there
  virtual Status Write(const Fd& file, const std::string& path, std::span<const std::byte> bytes) = 0;
  virtual Status Sync(const Fd& file, const std::string& path) = 0;
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;  // kAlreadyExists: not empty
  virtual Status RemoveFile(const std::string& path) = 0;
  virtual Status RemoveFolder(const std::string& path) = 0;  // an empty one
};

// The real one.
FileSystem& PosixFiles();

}  // namespace ringmaster::checkpoint
