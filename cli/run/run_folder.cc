// SPDX-License-Identifier: Apache-2.0

#include "cli/run/run_folder.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <utility>

#include "api/load.h"
#include "base/base64.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/open_file.h"

namespace ringmaster::cli {
namespace {

Result<std::string> NewSecret() {
  std::string bytes(32, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return ErrnoError("getrandom", errno);
  return EncodeBase64(bytes);
}

Status WritePrivate(const std::string& path, const std::string& text) {
  Fd file = OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!file.valid()) return ErrnoError("open " + path, errno);
  RM_TRY(WriteAll(file, path, std::as_bytes(std::span(text))));
  return CloseFile(std::move(file), path);
}

}  // namespace

Result<RunFolder> RunFolder::Create(const std::string& output_folder, const api::TrainingJob& job) {
  const std::string folder = output_folder + "/.run";
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (::mkdir(folder.c_str(), 0700) != 0) return ErrnoError("mkdir " + folder, errno);
  RM_ASSIGN(std::string secret, NewSecret());
  RunFolder created(folder, std::move(secret));  // from here on its destructor cleans up
  RM_TRY(WritePrivate(created.secret_file(), created.secret() + "\n"));
  RM_TRY(WritePrivate(created.job_file(), api::ToJson(job).dump(2) + "\n"));
  return created;
}

RunFolder::~RunFolder() {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace ringmaster::cli
