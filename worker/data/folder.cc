// SPDX-License-Identifier: Apache-2.0

#include "worker/data/folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "worker/data/file_view.h"

namespace ringmaster::data {
namespace fs = std::filesystem;

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Result<std::vector<std::string>> FilesBelow(const std::string& path, const std::string& suffix) {
  if (path.empty()) return Error{Code::kInvalid, "the data path is empty; give a file or a folder"};
  if (!IsFolder(path)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  std::error_code error;
  auto it = fs::recursive_directory_iterator(path, error);
  for (; !error && it != fs::end(it); it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;  // files that disappear or are not accessible count as not regular
    if (name.starts_with('.')) {
      if (it->is_directory(ignored)) it.disable_recursion_pending();
      continue;
    }
    if (it->is_regular_file(ignored) && name.ends_with(suffix)) files.push_back(it->path().string());
  }
  if (error) {
    return Problem(ErrnoError("", error.value()).code, path, error.message(),
                   "make the folder readable for the worker");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace ringmaster::data
