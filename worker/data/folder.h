// SPDX-License-Identifier: Apache-2.0

// The files below a path. Pure functions of the file system.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

// `path` itself when it is a file; else every regular file (or link to one) below it, in the order of their
// relative paths, byte by byte. Names that begin with a dot are passed over, and so is what is below them
// (version control, and the copies behind a mounted ConfigMap); links to folders are not followed. With
// `suffix`, files of a folder that do not end in it are passed over too.
Result<std::vector<std::string>> FilesBelow(const std::string& path, const std::string& suffix = "");

bool IsFolder(const std::string& path);
bool IsFile(const std::string& path);

}  // namespace ringmaster::data
