// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/private_folder.h"

#include <stdlib.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace ringmaster::agent {

Result<PrivateFolder> PrivateFolder::Create(const std::string& parent, size_t longest) {
  const char* const temporary = std::getenv("TMPDIR");
  const std::array<std::string, 4> parents = {parent, temporary == nullptr ? "" : temporary, "/tmp",
                                              "/dev/shm"};
  std::string why = "no folder is writable";
  for (const std::string& candidate : parents) {
    std::string path = candidate + "/ringmaster-XXXXXX";
    if (candidate.empty() || path.size() > longest) continue;
    if (::mkdtemp(path.data()) != nullptr) return PrivateFolder(std::move(path));
    why = ErrnoError("create a folder in " + candidate, errno).message;
  }
  return Error{Code::kUnavailable, why};
}

PrivateFolder::~PrivateFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ringmaster::agent
