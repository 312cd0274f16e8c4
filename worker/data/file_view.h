// SPDX-License-Identifier: Apache-2.0

// A file's bytes for reading: mapped when it is large, copied when it is small (a folder of a hundred
// thousand small files must not exhaust the mappings of the process). Move-only; the bytes stay where they
// are while the object lives, also when it is moved.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

// What is wrong with a path, and what to do about it.
Error Problem(Code code, const std::string& path, const std::string& reason, const std::string& remedy);

class FileView {
 public:
  // kNotFound, kForbidden, or kInvalid for something that is not a regular file. An empty file is fine here.
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
