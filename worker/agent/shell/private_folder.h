// SPDX-License-Identifier: Apache-2.0

// A folder that only this user can enter, removed with its contents when this ends. Move-only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/result.h"

namespace ringmaster::agent {

class PrivateFolder {
 public:
  // Creates it in `parent`, or where temporary files are when that is empty, not writable, or too long for a
  // path of at most `longest` bytes. Errors: kUnavailable when no folder is writable.
  static Result<PrivateFolder> Create(const std::string& parent, size_t longest);

  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  PrivateFolder& operator=(PrivateFolder&& other) = delete;
  ~PrivateFolder();

  const std::string& path() const { return path_; }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace ringmaster::agent
