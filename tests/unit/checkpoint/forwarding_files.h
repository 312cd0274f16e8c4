// SPDX-License-Identifier: Apache-2.0

// A file system that does what the real one does, for tests that change some of its calls.
#pragma once

#include <span>
#include <string>

#include "worker/checkpoint/file_system.h"

namespace ringmaster::checkpoint {

class ForwardingFiles : public FileSystem {
 public:
  Status MakeFolder(const std::string& path) override { return BeforeChange(), real_.MakeFolder(path); }
  Result<Fd> Create(const std::string& path) override { return BeforeChange(), real_.Create(path); }
  Status Write(const Fd& file, const std::string& path, std::span<const std::byte> bytes) override {
    return BeforeChange(), real_.Write(file, path, bytes);
  }
  Status Sync(const Fd& file, const std::string& path) override {
    return BeforeChange(), real_.Sync(file, path);
  }
  Status SyncFolder(const std::string& path) override { return BeforeChange(), real_.SyncFolder(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return BeforeChange(), real_.Rename(from, to);
  }
  Status RemoveFile(const std::string& path) override { return BeforeChange(), real_.RemoveFile(path); }
  Status RemoveFolder(const std::string& path) override { return BeforeChange(), real_.RemoveFolder(path); }

 protected:
  // Called before each call that is forwarded.
  virtual void BeforeChange() {}
  FileSystem& real_ = PosixFiles();
};

}  // namespace ringmaster::checkpoint
