// SPDX-License-Identifier: Apache-2.0

// A temporary folder for one test, removed with its contents when the test ends. Thread-safe.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/check.h"

namespace ringmaster {

class TempFolder {
 public:
  // Below `parent`; empty: where the system keeps what is temporary.
  explicit TempFolder(const std::string& parent = {}) {
    const std::filesystem::path above =
        parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(parent);
    std::string pattern = (above / "ringmaster-test-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr, "mkdtemp {}: error {}", pattern, errno);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  // Makes the folders on the way, too. The path of the file.
  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path file = File(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }
  // Empty when there is no such file.
  std::string Read(const std::string& name) const {
    std::ostringstream bytes;
    bytes << std::ifstream(File(name), std::ios::binary).rdbuf();
    return bytes.str();
  }

 private:
  std::string path_;
};

}  // namespace ringmaster
