// SPDX-License-Identifier: Apache-2.0

// The files of a working folder that travel with a job: all that git would not ignore, without secrets, and
// without what others create again, such as caches and virtual environments. Main thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::cli::launch {

struct CodeFile {
  std::string path;  // relative to the folder, with slashes
  std::string content;
  std::string link = {};  // target of a symbolic link; then there is no content
  bool executable = false;
};

struct LeftOut {
  std::string path;
  std::string why;
};

struct CodeFolder {
  std::vector<CodeFile> files;    // by path
  std::vector<LeftOut> left_out;  // what users may miss: not what git ignores
};

// Bounds of what is read at all. What is sent is bounded by its compressed size.
inline constexpr size_t kMostFiles = 5000;
inline constexpr int64_t kMostBytes = int64_t{64} << 20;

// Honours .gitignore files from the root of the repository down, info/exclude of the repository, and the
// ignore file of the user. Errors: kInvalid with the remedy if git ignores the folder itself, or the bounds
// are exceeded.
Result<CodeFolder> ReadCode(const std::string& folder);

}  // namespace ringmaster::cli::launch
