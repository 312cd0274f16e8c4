// SPDX-License-Identifier: Apache-2.0

#include "worker/data/folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "worker/data/problem.h"

namespace ringmaster::data {
namespace fs = std::filesystem;
namespace {

Error CannotExamine(const std::string& path, const std::error_code& error) {
  return Problem(ErrnoError("", error.value()).code, path, error.message(),
                 "make it readable for the worker");
}

// Returns an error if the link to a folder leads to a folder that contains it: its files have no end.
Status CheckLoop(const std::string& link) {
  std::error_code error;
  const fs::path target = fs::canonical(link, error);
  const fs::path place = fs::canonical(fs::path(link).parent_path(), error);
  if (error) return CannotExamine(link, error);
  if (std::mismatch(target.begin(), target.end(), place.begin(), place.end()).first != target.end())
    return Ok();
  return Problem(Code::kInvalid, link, fmt::format("is a link to {}, which contains it", target.string()),
                 "remove the link");
}

}  // namespace

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

Status CheckFolder(const std::string& path, const std::string& remedy) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::directory:
      return Ok();
    case fs::file_type::not_found:
      return Problem(Code::kNotFound, path, WhyMissing(path), remedy);
    case fs::file_type::none:
    case fs::file_type::unknown:
      if (error) return CannotExamine(path, error);
      [[fallthrough]];
    default:
      return Problem(Code::kInvalid, path, "is a file", remedy);
  }
}

Result<bool> FileExists(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) {
    if (!fs::is_symlink(path, error)) return false;
    return Problem(Code::kNotFound, path, WhyMissing(path), "remove the link or restore the file");
  }
  if (type == fs::file_type::none || type == fs::file_type::unknown) return CannotExamine(path, error);
  return type == fs::file_type::regular;
}

std::string WhyMissing(const std::string& path, const char* otherwise) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error) return otherwise;
  return fmt::format("is a link to {}, which does not exist", target.string());
}

Result<std::vector<std::string>> FilesBelow(const std::string& path, const std::string& suffix) {
  if (path.empty()) return Error{Code::kInvalid, "the data path is empty; give a file or a folder"};
  if (!IsFolder(path)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  std::error_code error;
  std::string folder = path;  // the one that is being opened
  const auto links = fs::directory_options::follow_directory_symlink;
  auto it = fs::recursive_directory_iterator(path, links, error);
  for (; !error && it != fs::end(it); it.increment(error)) {
    folder = it->path().string();
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.')) {
      if (it->is_directory(ignored)) it.disable_recursion_pending();
      continue;
    }
    if (it->is_directory(ignored)) {
      if (it->is_symlink(ignored)) RM_TRY(CheckLoop(folder));
      continue;
    }
    if (!name.ends_with(suffix)) continue;
    // A file that is left out would change the data silently.
    RM_ASSIGN(const bool exists, FileExists(folder));
    if (exists) files.push_back(folder);
  }
  if (error) return CannotExamine(folder, error);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace ringmaster::data
