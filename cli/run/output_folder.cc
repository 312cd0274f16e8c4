// SPDX-License-Identifier: Apache-2.0

#include "cli/run/output_folder.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/pid_lock.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/names.h"

namespace ringmaster::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRemedy = "choose another folder with --out";

Error Unusable(const std::string& path, const std::string& why, const std::string& remedy) {
  return {Code::kInvalid, fmt::format("{}: {}; {}", path, why, remedy)};
}

// Returns the topmost part of `path` that does not exist; empty when all of it exists.
std::string FirstMissing(const std::string& path) {
  fs::path missing;
  for (fs::path at = path; !at.empty(); at = at.parent_path()) {
    std::error_code error;
    if (fs::exists(at, error)) break;
    missing = at;
    if (at == at.parent_path()) break;
  }
  return missing.string();
}

// Removes a tree of folders that contains no file.
void RemoveIfEmptyTree(const std::string& root) {
  if (root.empty()) return;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(root, error))
    if (!entry.is_directory(error)) return;  // another process put a file there
  fs::remove_all(root, error);
}

Status CheckSpace(const std::string& folder, int64_t needed_bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return ErrnoError("statvfs " + folder, errno);
  const auto available = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (available >= needed_bytes) return Ok();
  return Unusable(folder,
                  fmt::format("only {:.1f} MB are free and checkpoints need {:.1f} MB",
                              static_cast<double>(available) / 1e6, static_cast<double>(needed_bytes) / 1e6),
                  "free some space, lower spec.checkpoint.keep, or choose another folder with --out");
}

// Writes a probe file: the free space that the file system reports ignores quotas and limits.
Status CheckWritable(const std::string& folder) {
  const std::string probe = fmt::format("{}/.probe-{}", folder, ::getpid());
  const std::vector<std::byte> bytes(64 << 10, std::byte{1});
  const Status written = WriteFileDurable(probe, bytes);
  ::unlink(probe.c_str());
  if (!written.ok()) return Unusable(folder, "cannot be written to: " + written.error().message, kRemedy);
  return Ok();
}

// `remedy`: for a folder that another run uses.
Result<Fd> TakeLock(const std::string& folder, const std::string& name, const std::string& remedy) {
  Result<Fd> lock = TakePidLock(folder + "/" + name);
  if (lock.ok()) return lock;
  if (lock.error().code != Code::kConflict) return Unusable(folder, lock.error().message, kRemedy);
  return Unusable(folder,
                  fmt::format("in use by another `ringmaster` process (pid {})", lock.error().message),
                  "wait for it, stop it, or " + remedy);
}

bool IsBelow(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

// Removes files and remembers the first failure.
class Remover {
 public:
  void Remove(const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
    if (error && outcome_.ok())
      outcome_ = Unusable(path.string(), "cannot be removed: " + error.message(), kRemedy);
  }
  void RemoveIn(const std::string& folder, const std::function<bool(const fs::path&)>& ours) {
    std::error_code error;
    std::vector<fs::path> found;
    auto it = fs::directory_iterator(folder, error);
    for (; !error && it != fs::end(it); it.increment(error))
      if (ours(it->path())) found.push_back(it->path());
    if (error && error != std::errc::no_such_file_or_directory && outcome_.ok())
      outcome_ = Unusable(folder, "cannot be read: " + error.message(), kRemedy);
    for (const fs::path& path : found) Remove(path);
  }
  void Note(const Status& status) {
    if (outcome_.ok() && !status.ok()) outcome_ = Error{Code::kInvalid, status.error().message};
  }
  const Status& outcome() const { return outcome_; }

 private:
  Status outcome_;
};

}  // namespace

OutputPaths PathsIn(const std::string& folder, const std::string& checkpoint_path) {
  return {folder,
          checkpoint_path.empty() ? folder + "/checkpoints" : checkpoint_path,
          folder + "/logs",
          folder + "/metrics.jsonl",
          folder + "/events.jsonl",
          folder + "/busy_times.jsonl",
          folder + "/summary.json",
          folder + "/tensorboard",
          folder + "/digests"};
}

OutputFolder::OutputFolder(OutputPaths paths, Fd lock, std::string created)
    : paths_(std::move(paths)), lock_(std::move(lock)), created_(std::move(created)) {}

OutputFolder::~OutputFolder() {
  if (!lock_.valid() || created_.empty()) return;
  ::unlink((paths_.folder + "/.lock").c_str());
  if (IsBelow(paths_.checkpoints, paths_.folder))
    ::unlink((paths_.checkpoints + "/" + std::string(checkpoint::kRunLockName)).c_str());
  RemoveIfEmptyTree(created_);
}

Result<OutputFolder> OutputFolder::Open(const OutputPaths& paths, int64_t needed_bytes,
                                        bool owns_checkpoints) {
  const std::string created = FirstMissing(paths.folder);
  if (const Status folder = MakeFolder(paths.folder); !folder.ok()) {
    RemoveIfEmptyTree(created);
    return Error{Code::kInvalid, fmt::format("{}; {}", folder.error().message, kRemedy)};
  }
  auto lock = TakeLock(paths.folder, ".lock", kRemedy);
  if (!lock.ok()) {
    RemoveIfEmptyTree(created);
    return lock.error();
  }
  OutputFolder opened(paths, std::move(*lock), created);  // from here on its destructor cleans up
  needed_bytes = std::max<int64_t>(0, needed_bytes - checkpoint::BytesIn(paths.checkpoints));
  RM_TRY(CheckSpace(paths.folder, needed_bytes));
  RM_TRY(CheckWritable(paths.folder));
  for (const std::string& folder : {paths.checkpoints, paths.logs})
    if (const Status status = MakeFolder(folder); !status.ok())
      return Error{Code::kInvalid, fmt::format("{}; {}", status.error().message, kRemedy)};
  if (owns_checkpoints) {
    RM_ASSIGN(opened.checkpoints_lock_, TakeLock(paths.checkpoints, std::string(checkpoint::kRunLockName),
                                                 "give the job another folder (spec.checkpoint.path)"));
  }
  if (!IsBelow(paths.checkpoints, paths.folder)) RM_TRY(CheckSpace(paths.checkpoints, needed_bytes));
  return opened;
}

Status OutputFolder::Clean(const std::string& run) const {
  Remover remover;
  const bool own = IsBelow(paths_.checkpoints, paths_.folder) && paths_.checkpoints != paths_.folder;
  remover.Note(checkpoint::RemoveAll(paths_.checkpoints, own ? "" : run));
  remover.RemoveIn(paths_.logs, [](const fs::path& path) { return path.extension() == ".log"; });
  remover.RemoveIn(paths_.tensorboard, [](const fs::path& path) {
    return path.filename().string().starts_with("events.out.tfevents.");
  });
  remover.RemoveIn(paths_.digests, [](const fs::path& path) { return path.extension() == ".jsonl"; });
  for (const std::string& file :
       {paths_.metrics, paths_.events, paths_.busy_times, paths_.summary, paths_.folder + "/mlflow.json"})
    remover.Remove(file);
  return remover.outcome();
}

}  // namespace ringmaster::cli
