// SPDX-License-Identifier: Apache-2.0

// Lists the files below a path. Pure functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

// Returns `path` itself if it is a file. Otherwise returns every regular file (or link to one) below it that
// ends in `suffix`, in bytewise order of their relative paths. Names that begin with a dot are skipped,
// including everything below them (version control, the copies behind a mounted ConfigMap). Links to folders
// are not followed.
Result<std::vector<std::string>> FilesBelow(const std::string& path, const std::string& suffix = "");

bool IsFolder(const std::string& path);
bool IsFile(const std::string& path);

}  // namespace ringmaster::data
