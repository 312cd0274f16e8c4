// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/maintenance.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
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

// What distinguishes a checkpoint from another one of the same step; empty: it has no MANIFEST. A run that
// writes a damaged one again may write the same MANIFEST, but into another file.
std::string VersionOf(const std::string& folder, int64_t step) {
  struct stat info {};
  const std::string path = folder + "/" + StepName(step) + "/" + std::string(kManifestName);
  if (::stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{} {} {} {} {}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

// By step. While they are the same, so is what was found by reading the checkpoints.
using Versions = std::map<int64_t, std::string>;

Error MayBeWhole(const std::string& checkpoint, const Error& why) {
  return {Code::kUnavailable,
          fmt::format("{}: may be whole, but cannot be read ({}); try again, or give --force", checkpoint,
                      why.message)};
}

// Returns an error if the removal would take the newest whole checkpoint of a run, or one that may be it. The
// folder is not locked meanwhile: this reads gigabytes, and writers do not wait for long. Adds to `seen` the
// checkpoints on which the outcome depends.
Status CheckNewestStay(const std::string& folder, const std::set<int64_t>& removed, Versions* seen,
                       WorkCounter* counter) {
  if (removed.empty()) return Ok();
  RM_ASSIGN(const auto steps, StepsIn(folder));
  std::set<std::string> safe;  // the runs of which a newer whole checkpoint stays
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = folder + "/" + StepName(*step);
    const std::string version = VersionOf(folder, *step);
    if (removed.contains(*step)) seen->emplace(*step, version);
    const auto manifest = ReadManifest(path);
    if (!manifest.ok()) {
      if (removed.contains(*step) && manifest.error().code != Code::kCorrupt)
        return MayBeWhole(path, manifest.error());
      continue;
    }
    const bool older_removed = *removed.begin() < *step;
    if (safe.contains(manifest->model) || (!removed.contains(*step) && !older_removed)) continue;
    const std::vector<Error> damage = FindDamage(path, counter);
    const CatalogEntry::Kind kind = KindOf(damage);
    if (!removed.contains(*step)) {
      if (kind != CatalogEntry::Kind::kWhole) continue;
      safe.insert(manifest->model);
      seen->emplace(*step, version);
    } else if (kind == CatalogEntry::Kind::kUnreadable) {
      return MayBeWhole(path, damage.front());
    } else if (kind == CatalogEntry::Kind::kWhole) {
      return Error{Code::kConflict,
                   fmt::format("{}: step {} is the newest whole checkpoint of its run, and a job on a "
                               "cluster fails if it is missing; keep step {}, or give --force",
                               folder, *step, *step)};
    }
  }
  return Ok();
}

bool AreStill(const std::string& folder, const Versions& seen) {
  return std::all_of(seen.begin(), seen.end(),
                     [&](const auto& one) { return VersionOf(folder, one.first) == one.second; });
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

// The folders that a fork creates. Removes them when it is destroyed, unless Keep was called; before Own,
// only if they are empty.
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
    if (owned_)
      for (const auto name : {kFolderLockName, kRunLockName}) fs::remove(folder_ / name, ignored);
    // Removes empty folders only.
    for (fs::path at = folder_; count_ > 0 && fs::remove(at, ignored); at = at.parent_path()) --count_;
  }
  // The locks in the folder are those of this process.
  void Own() { owned_ = true; }
  void Keep() { count_ = 0; }

 private:
  const fs::path folder_;
  bool owned_ = false;
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
  RM_TRY(CheckNoWriter(folder));
  Versions seen;
  if (!force) RM_TRY(CheckNewestStay(folder, removed, &seen, counter));
  const FolderLock lock(folder);
  if (lock.stuck())
    return Error{Code::kConflict, folder + ": another process holds the lock of the folder; try again later"};
  RM_TRY(CheckNoWriter(folder));
  if (!AreStill(folder, seen))
    return Error{Code::kConflict,
                 folder + ": a run has changed the checkpoints meanwhile; suspend or stop it, and try again"};
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

  Fd run_lock;  // held until the file of the lock is removed
  CreatedFolders created(target.string());
  RM_TRY(MakeFolder(target.string()));
  RM_ASSIGN(run_lock, LockAgainstRuns(target.string()));
  created.Own();
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
