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
// are followed. Errors: such a link leads to a folder that contains it.
Result<std::vector<std::string>> FilesBelow(const std::string& path, const std::string& suffix = "");

bool IsFolder(const std::string& path);

// Returns an error with `remedy` unless `path` is a folder.
Status CheckFolder(const std::string& path, const std::string& remedy);

// Returns whether `path` is a regular file or a link to one. Errors: it cannot be examined, or is a link to a
// file that does not exist.
Result<bool> FileExists(const std::string& path);

// Returns why nothing exists at `path`: it is a link that leads nowhere, or `otherwise`.
std::string WhyMissing(const std::string& path, const char* otherwise = "does not exist");

}  // namespace ringmaster::data
