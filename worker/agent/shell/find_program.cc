// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/find_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/file.h"

namespace ringmaster::agent {

Result<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const set = std::getenv("PATH");
  std::string_view path = set == nullptr ? "/usr/local/bin:/usr/bin:/bin" : set;
  while (!path.empty()) {
    const size_t colon = std::min(path.find(':'), path.size());
    const std::string folder(path.substr(0, colon));
    path.remove_prefix(std::min(colon + 1, path.size()));
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return Error{Code::kNotFound, fmt::format("{}: no such program in PATH", name)};
}

Result<std::string> FindExecutable(const std::string& name) {
  RM_ASSIGN(std::string path, FindProgram(name));
  if (::access(path.c_str(), X_OK) != 0) return ErrnoError("cannot run " + path, errno);
  return path;
}

}  // namespace ringmaster::agent
