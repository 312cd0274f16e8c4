// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/maintenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/pid_lock.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/identity.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/publisher.h"
#include "worker/checkpoint/temporary.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr const char* kUnique = "checkpoints";  // in the names of temporary folders

Result<Fd> LockAgainstRuns(const std::string& folder) {
  auto lock = TakePidLock(folder + "/" + std::string(kRunLockName));
  if (lock.ok() || lock.error().code != Code::kConflict) return lock;
  return Error{Code::kConflict, fmt::format("{}: in use by another `ringmaster` process (pid {}); wait for "
                                            "it, or stop it, and try again",
                                            folder, lock.error().message)};
}

// A run on a cluster does not hold the lock of `ringmaster run`, but its writer has one in a temporary folder
// while it writes.
Status CheckNoWriter(const std::string& folder) {
  for (const std::string& name : NamesIn(folder)) {
    if (IsTemporaryName(name) && HasLiveWriter(folder + "/" + name))
      return Error{
          Code::kConflict,
          fmt::format("{}/{}: a run writes a checkpoint; suspend or stop it, and try again", folder, name)};
  }
  return Ok();
}

// Returns an error if the removal would leave no whole checkpoint, and takes one.
Status CheckOneStays(const std::string& folder, const std::set<int64_t>& removed, WorkCounter* counter) {
  RM_ASSIGN(const auto steps, StepsIn(folder));
  const auto is_whole = [&](int64_t step) {
    return FindDamage(folder + "/" + StepName(step), counter).empty();
  };
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    if (!removed.contains(*step) && is_whole(*step)) return Ok();
  for (const int64_t step : removed) {
    if (is_whole(step))
      return Error{
          Code::kConflict,
          fmt::format("{}: no other whole checkpoint would stay than those to remove; keep step {}, or "
                      "give --force",
                      folder, *removed.rbegin())};
  }
  return Ok();
}

Json WithParent(Json meta, const std::string& path, int64_t step) {
  // A checkpoint of an older build has no identity. An invented one would be compared with the run's.
  if (!json::Child(meta, "identity").is_object()) return meta;
  meta["identity"]["parent"] = {
      {"run", RunOf(meta)}, {"step", step}, {"path", path}, {"changed", Json::array()}};
  return meta;
}

bool IsInCheckpoint(const fs::path& path) {
  return std::any_of(path.begin(), path.end(), [](const fs::path& part) {
    const std::string name = part.string();
    return ParseStepName(name).has_value() || IsTemporaryName(name);
  });
}

// The folders that a fork creates. Removes them when it is destroyed, unless Keep was called.
class CreatedFolders {
 public:
  explicit CreatedFolders(const std::string& folder) : folder_(folder) {
    std::error_code error;
    for (fs::path at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path()) ++count_;
  }
  CreatedFolders(const CreatedFolders&) = delete;
  CreatedFolders& operator=(const CreatedFolders&) = delete;
  ~CreatedFolders() {
    std::error_code ignored;
    if (count_ == 0) return;
    for (const auto name : {kFolderLockName, kRunLockName}) fs::remove(folder_ / name, ignored);
    // Removes empty folders only.
    for (fs::path at = folder_; count_ > 0 && fs::remove(at, ignored); at = at.parent_path()) --count_;
  }
  void Keep() { count_ = 0; }

 private:
  const fs::path folder_;
  int count_ = 0;
};

}  // namespace

Status RemoveSteps(const std::string& folder, const std::vector<int64_t>& steps, bool force,
                   WorkCounter* counter) {
  const std::set<int64_t> removed(steps.begin(), steps.end());
  for (const int64_t step : removed) {
    RM_ASSIGN(const CatalogEntry entry, FindStep(folder, step));
    if (entry.link)
      return Error{Code::kConflict, fmt::format("{}/{}: is a link, which is never removed; remove it by rm",
                                                folder, entry.name)};
  }
  RM_ASSIGN(const Fd run_lock, LockAgainstRuns(folder));
  const FolderLock lock(folder);
  if (lock.stuck())
    return Error{Code::kConflict, folder + ": another process holds the lock of the folder; try again later"};
  RM_TRY(CheckNoWriter(folder));
  if (!force) RM_TRY(CheckOneStays(folder, removed, counter));
  Status outcome;
  for (const int64_t step : removed) {
    const Status discarded = Discard(&PosixFiles(), folder, step, kUnique);
    if (outcome.ok() && !discarded.ok()) outcome = discarded;
  }
  Sweep(&PosixFiles(), folder);
  return outcome;
}

Result<std::string> Fork(const std::string& folder, int64_t step, const std::string& to,
                         WorkCounter* counter) {
  RM_ASSIGN(CatalogEntry entry, FindStep(folder, step));
  if (!entry.problem.empty())
    return Error{entry.kind == CatalogEntry::Kind::kDamaged ? Code::kCorrupt : Code::kUnavailable,
                 entry.problem};
  std::error_code error;
  const fs::path target = to.empty() ? fs::path() : fs::weakly_canonical(fs::absolute(to, error), error);
  if (error) return ErrnoError("look at " + to, error.value());
  if (target.empty() || IsInCheckpoint(target))
    return Error{Code::kInvalid,
                 "--to " + to +
                     ": is no folder outside of a checkpoint; give one that does not exist yet, "
                     "in which step-... is created"};
  const fs::path source = fs::canonical(folder + "/" + entry.name, error);
  if (error) return ErrnoError("look at " + folder + "/" + entry.name, error.value());

  CreatedFolders created(target.string());
  RM_TRY(MakeFolder(target.string()));
  RM_ASSIGN(const Fd run_lock, LockAgainstRuns(target.string()));
  RM_ASSIGN(const auto others, StepsIn(target.string()));
  if (!others.empty())
    return Error{
        Code::kAlreadyExists,
        fmt::format("--to {}: has checkpoints already (the newest is of step {}); give another folder, "
                    "or remove them with `ringmaster checkpoints rm`",
                    to, others.back())};
  entry.manifest.meta = WithParent(std::move(entry.manifest.meta), source.string(), step);
  Publisher publisher(&PosixFiles(), target.string(), 1, kUnique);
  RM_TRY(publisher.PublishCopyOf(source.string(), entry.manifest, counter));
  created.Keep();
  return target.string() + "/" + entry.name;
}

}  // namespace ringmaster::checkpoint
