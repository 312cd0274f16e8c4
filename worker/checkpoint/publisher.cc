// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/publisher.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/checkpoint/attempt.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/identity.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {
namespace {

bool IsLink(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_symlink(path, ignored);
}

}  // namespace

Publisher::Publisher(FileSystem* files, std::string folder, int keep, std::string unique, size_t chunk_bytes)
    : files_(files),
      folder_(std::move(folder)),
      keep_(keep),
      unique_(std::move(unique)),
      chunk_bytes_(chunk_bytes) {
  CHECK(keep >= 1 && chunk_bytes >= 1);
}

Status Publisher::Publish(const Copy& copy) {
  return Publish(copy, [this, &copy](const std::string& folder) -> Result<std::vector<ArrayEntry>> {
    std::vector<ArrayEntry> arrays;
    int64_t next_chunk = 0;
    for (const Copy::Array& array : copy.arrays) {
      RM_ASSIGN(ArrayEntry entry, WriteArray(array, folder, &next_chunk));
      arrays.push_back(std::move(entry));
    }
    return arrays;
  });
}

Status Publisher::PublishCopyOf(const std::string& source, const Manifest& manifest, WorkCounter* counter) {
  Copy copy;
  copy.step = manifest.step;
  copy.model = manifest.model;
  copy.meta = manifest.meta;
  copy.state = manifest.state;
  int64_t total = 0;
  for (const ArrayEntry& array : manifest.arrays) total += array.bytes;
  if (counter != nullptr) counter->Begin(total);
  return Publish(copy, [&](const std::string& folder) -> Result<std::vector<ArrayEntry>> {
    for (const ArrayEntry& array : manifest.arrays) {
      for (const Chunk& chunk : array.chunks) {
        RM_TRY(CopyChunk(source, chunk, folder));
        if (counter != nullptr) counter->Add(chunk.bytes);
      }
    }
    return manifest.arrays;
  });
}

Status Publisher::CopyChunk(const std::string& source, const Chunk& chunk, const std::string& folder) {
  RM_TRY(CheckSize(source, chunk));
  std::vector<std::byte> bytes(static_cast<size_t>(chunk.bytes));
  RM_TRY(ReadChunk(source, chunk, bytes));
  return WriteFile(folder + "/" + chunk.file, bytes);
}

Status Publisher::Publish(const Copy& copy, const WriteArrays& write_arrays) {
  const std::string context = fmt::format("checkpoint of step {}", copy.step);
  RM_ASSIGN(const bool good, IsGood(copy));
  if (good) {
    const FolderLock lock(folder_);
    RM_TRY(CheckOwner(copy));
    RM_TRY(files_->SyncFolder(folder_));  // its writer may not have synced it
  } else {
    if (const Status owner = CheckOwner(copy); !owner.ok()) return owner.error().In(context);
    RM_ASSIGN(Temporary temporary, Temporary::Create(files_, folder_, copy.step, unique_));
    Status written = Write(copy, temporary.path(), write_arrays);
    if (written.ok()) {
      const FolderLock lock(folder_);
      written = MoveIntoPlace(&temporary, copy);
    }
    if (!written.ok()) {
      // Free the space, especially on a full disk.
      const Status removed = temporary.Remove(files_);
      if (!removed.ok()) log::Warn("checkpoint: {}", removed.error().message);
      // A newer attempt has taken the temporary folder away, too.
      if (const Status owner = CheckOwner(copy); !owner.ok()) written = owner;
      return written.error().In(context);
    }
    const std::string lock = folder_ + "/" + StepName(copy.step) + "/" + std::string(kLockName);
    const Status unlocked = files_->RemoveFile(lock);
    (void)unlocked;  // harmless if it remains; missing if another writer's checkpoint was kept
  }
  {
    const FolderLock lock(folder_);
    if (CheckOwner(copy).ok()) RemoveOld(copy.model);
  }
  Sweep(files_, folder_);
  return Ok();
}

Status Publisher::CheckOwner(const Copy& copy) const {
  if (!copy.attempt.has_value()) return Ok();
  RM_ASSIGN(const std::string owner, OwnerOf(folder_));
  if (owner == *copy.attempt) return Ok();
  return Error{
      Code::kGone,
      fmt::format("{}: a newer attempt of this job has taken the folder over ({}); this one must not "
                  "write there",
                  folder_, owner)};
}

Status Publisher::Write(const Copy& copy, const std::string& folder, const WriteArrays& write_arrays) {
  Manifest manifest{
      .step = copy.step, .model = copy.model, .state = copy.state, .meta = copy.meta, .arrays = {}};
  RM_ASSIGN(manifest.arrays, write_arrays(folder));
  RM_TRY(files_->SyncFolder(folder));
  const std::string path = folder + "/" + std::string(kManifestName);
  const std::string text = EncodeManifest(manifest);
  RM_TRY(WriteFile(path, std::as_bytes(std::span(text.data(), text.size()))));
  return files_->SyncFolder(folder);
}

Status Publisher::WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  RM_ASSIGN(Fd file, files_->Create(path));
  RM_TRY(files_->Write(file, path, bytes));
  RM_TRY(files_->Sync(file, path));
  return files_->Close(std::move(file), path);
}

Result<ArrayEntry> Publisher::WriteArray(const Copy::Array& array, const std::string& folder,
                                         int64_t* next_chunk) {
  ArrayEntry entry{.name = array.name,
                   .type = array.type,
                   .bytes = static_cast<int64_t>(array.bytes.size()),
                   .chunks = {}};
  for (size_t at = 0; at < array.bytes.size(); at += chunk_bytes_) {
    const auto piece = std::span(array.bytes).subspan(at, std::min(chunk_bytes_, array.bytes.size() - at));
    Chunk chunk{.file = ChunkName((*next_chunk)++),
                .bytes = static_cast<int64_t>(piece.size()),
                .hash = Hash64(piece)};
    const std::string path = folder + "/" + chunk.file;
    RM_TRY(WriteFile(path, piece));
    entry.chunks.push_back(std::move(chunk));
  }
  return entry;
}

Status Publisher::MoveIntoPlace(Temporary* from, const Copy& copy) {
  RM_TRY(CheckOwner(copy));
  const std::string to = folder_ + "/" + StepName(copy.step);
  Status moved = files_->Rename(from->path(), to);
  if (!moved.ok() && moved.error().code == Code::kAlreadyExists) {
    RM_ASSIGN(const bool good, IsGood(copy));
    if (good) {  // another writer was faster, with the same bits
      RM_TRY(files_->SyncFolder(folder_));
      return from->Remove(files_);
    }
    log::Warn("checkpoint: replacing {}, which is damaged or has another state", to);
    // A newer attempt may have published it: it takes the folder over despite the lock if this process was
    // stopped for a while.
    RM_TRY(CheckOwner(copy));
    RM_TRY(Discard(files_, folder_, copy.step, unique_));
    moved = files_->Rename(from->path(), to);
  }
  if (!moved.ok() && IsLink(to))
    return Error{Code::kConflict, to + ": is a link, which is never replaced; remove it"};
  RM_TRY(moved);
  RM_TRY(files_->SyncFolder(folder_));
  const auto back = ReadManifest(to);
  if (!back.ok()) return back.error().In("reading back the written checkpoint");
  RM_TRY(CheckSizes(to, *back));
  good_.insert(copy.step);
  return Ok();
}

// Returns whether the checkpoint of the step exists with the state of this copy. Errors: kConflict when it is
// of another run; those of reading it, unless it is damaged.
Result<bool> Publisher::IsGood(const Copy& copy) {
  const std::string path = folder_ + "/" + StepName(copy.step);
  const auto manifest = good_.contains(copy.step) ? ReadManifest(path) : Verify(path);
  if (!manifest.ok()) {
    good_.erase(copy.step);
    // Only damage may be replaced: one that cannot be read now, or is of a newer format, may be whole.
    if (manifest.error().code != Code::kCorrupt) return manifest.error();
    return false;
  }
  const bool same_state = copy.state == manifest->state;
  if (manifest->model != copy.model) {
    // A run that continues from another one in the same folder, and has nothing to do, has its state.
    if (same_state && !copy.state.empty()) return true;
    return Error{Code::kConflict,
                 fmt::format("{}: is a checkpoint of another run ({}, of the job {}); give each job another "
                             "folder (--out, spec.checkpoint.path)",
                             path, manifest->model, RunOf(manifest->meta))};
  }
  if (!same_state && !copy.state.empty() && !manifest->state.empty()) {
    log::Warn("checkpoint: {} has the state {}, and the members of the run agree on {}", path,
              manifest->state, copy.state);
    good_.erase(copy.step);
    return false;
  }
  good_.insert(copy.step);
  return true;
}

bool Publisher::IsGood(int64_t step, const std::string& model) {
  const std::string path = folder_ + "/" + StepName(step);
  if (good_.contains(step)) {
    const auto manifest = ReadManifest(path);  // another process may have removed it
    if (manifest.ok() && manifest->model == model) return true;
    good_.erase(step);
    return false;
  }
  const auto manifest = Verify(path);
  if (!manifest.ok() || manifest->model != model) return false;
  good_.insert(step);
  return true;
}

// A folder that cannot be removed does not keep the others: each is tried.
void Publisher::RemoveOld(const std::string& model) {
  const auto steps = StepsIn(folder_);
  if (!steps.ok()) return log::Warn("checkpoint: cannot remove old ones: {}", steps.error().message);
  if (steps->size() <= static_cast<size_t>(keep_)) return;
  int good = 0;
  size_t oldest_kept = steps->size();
  while (oldest_kept > 0 && good < keep_) {
    const int64_t step = (*steps)[--oldest_kept];
    good += !IsLink(folder_ + "/" + StepName(step)) && IsGood(step, model) ? 1 : 0;
  }
  if (good < keep_) return;  // keep damaged ones until there are enough valid ones
  for (size_t i = 0; i < oldest_kept; ++i) {
    const int64_t step = (*steps)[i];
    if (!IsDiscardable(folder_, step)) continue;
    const auto manifest = ReadManifest(folder_ + "/" + StepName(step));
    if (manifest.ok() && manifest->model != model) continue;  // of another job
    // It may be whole, and of another job.
    if (!manifest.ok() && manifest.error().code != Code::kCorrupt) continue;
    const Status removed = Discard(files_, folder_, step, unique_);
    if (!removed.ok()) log::Warn("checkpoint: cannot remove an old one: {}", removed.error().message);
    good_.erase(step);
  }
}

Status RemoveAll(const std::string& folder, const std::string& run) {
  const auto steps = StepsIn(folder);
  if (!steps.ok()) return steps.error().code == Code::kNotFound ? Ok() : Status(steps.error());
  FileSystem& files = PosixFiles();
  const FolderLock lock(folder);
  Status outcome;
  const auto note = [&outcome](const Error& error) {
    if (outcome.ok()) outcome = error;
  };
  for (const int64_t step : *steps) {
    const std::string path = folder + "/" + StepName(step);
    if (IsLink(path)) {
      note(Error{Code::kConflict, path + ": is a link, which is never removed; remove it"});
      continue;
    }
    const auto manifest = ReadManifest(path);
    if (!run.empty() && manifest.ok() && RunOf(manifest->meta) != run) {
      note(Error{Code::kConflict,
                 fmt::format("{}: is a checkpoint of the job {}, which is not removed; give this "
                             "job another folder (--out, spec.checkpoint.path)",
                             path, RunOf(manifest->meta))});
      continue;
    }
    if (const Status removed = Discard(&files, folder, step, "fresh"); !removed.ok()) note(removed.error());
  }
  Sweep(&files, folder);
  return outcome;
}

}  // namespace ringmaster::checkpoint
