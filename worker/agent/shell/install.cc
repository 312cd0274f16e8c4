// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/install.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>

#include "base/file.h"

namespace ringmaster::agent {
namespace {

constexpr mode_t kExecutableByAll = 0755;

}  // namespace

Status InstallAgent(const std::string& path) {
  RM_ASSIGN(const std::string program, ReadFile("/proc/self/exe"));
  if (const std::string folder = std::filesystem::path(path).parent_path(); !folder.empty())
    RM_TRY(MakeFolder(folder));
  const std::string partial = path + ".partial";
  RM_TRY(WriteFileDurable(partial, std::as_bytes(std::span(program.data(), program.size()))));
  if (::chmod(partial.c_str(), kExecutableByAll) != 0) return ErrnoError("chmod " + partial, errno);
  if (std::rename(partial.c_str(), path.c_str()) != 0) return ErrnoError("rename to " + path, errno);
  return Ok();
}

}  // namespace ringmaster::agent
