// SPDX-License-Identifier: Apache-2.0

// FileView gives read access to a file's bytes. It maps a large file and copies a small one (a hundred
// thousand small files must not exhaust the mappings of the process). Move-only; the bytes keep their address
// while the object lives, even when it is moved.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

// Returns an error with the path, what is wrong with it, and how to correct it.
Error Problem(Code code, const std::string& path, const std::string& reason, const std::string& remedy);

class FileView {
 public:
  // Errors: kNotFound; kForbidden; kInvalid when it is not a regular file. An empty file is no error.
  static Result<FileView> Open(const std::string& path);

  FileView(FileView&& other) noexcept;
  FileView& operator=(FileView&& other) noexcept;
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;
  ~FileView();

  std::span<const std::byte> bytes() const {
    return mapped_.empty() ? std::span<const std::byte>(copy_) : mapped_;
  }
  const std::string& path() const { return path_; }

 private:
  FileView() = default;
  std::string path_;
  std::span<const std::byte> mapped_;
  std::vector<std::byte> copy_;
};

}  // namespace ringmaster::data
