// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/publisher.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/temporary.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {

Publisher::Publisher(FileSystem* files, std::string folder, int keep, std::string unique, size_t chunk_bytes)
    : files_(files),
      folder_(std::move(folder)),
      keep_(keep),
      unique_(std::move(unique)),
      chunk_bytes_(chunk_bytes) {
  CHECK(keep >= 1 && chunk_bytes >= 1);
}

Status Publisher::Publish(const Copy& copy) {
  if (IsGood(copy.step, copy.model)) {
    RM_TRY(files_->SyncFolder(folder_));  // its writer may not have synced it
  } else {
    RM_ASSIGN(const Temporary temporary, Temporary::Create(files_, folder_, copy.step, unique_));
    Status written = Write(copy, temporary.path());
    if (written.ok()) {
      const FolderLock lock(folder_);
      written = MoveIntoPlace(temporary.path(), copy.step, copy.model);
    }
    if (!written.ok()) {
      // Free the space, especially on a full disk.
      const Status removed = RemoveWithFiles(files_, temporary.path());
      if (!removed.ok()) log::Warn("checkpoint: {}", removed.error().message);
      return written.error().In(fmt::format("checkpoint of step {}", copy.step));
    }
    const std::string lock = folder_ + "/" + StepName(copy.step) + "/" + std::string(kLockName);
    const Status unlocked = files_->RemoveFile(lock);
    (void)unlocked;  // harmless if it remains; missing if another writer's checkpoint was kept
  }
  {
    const FolderLock lock(folder_);
    const Status tidy = RemoveOld(copy.model);
    if (!tidy.ok()) log::Warn("checkpoint: cannot remove an old one: {}", tidy.error().message);
  }
  Sweep(files_, folder_);
  return Ok();
}

Status Publisher::Write(const Copy& copy, const std::string& folder) {
  Manifest manifest{.step = copy.step, .model = copy.model, .meta = copy.meta, .arrays = {}};
  int64_t next_chunk = 0;
  for (const Copy::Array& array : copy.arrays) {
    RM_ASSIGN(ArrayEntry entry, WriteArray(array, folder, &next_chunk));
    manifest.arrays.push_back(std::move(entry));
  }
  RM_TRY(files_->SyncFolder(folder));
  const std::string path = folder + "/" + std::string(kManifestName);
  const std::string text = EncodeManifest(manifest);
  RM_ASSIGN(const Fd file, files_->Create(path));
  RM_TRY(files_->Write(file, path, std::as_bytes(std::span(text.data(), text.size()))));
  RM_TRY(files_->Sync(file, path));
  return files_->SyncFolder(folder);
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
    RM_ASSIGN(const Fd file, files_->Create(path));
    RM_TRY(files_->Write(file, path, piece));
    RM_TRY(files_->Sync(file, path));
    entry.chunks.push_back(std::move(chunk));
  }
  return entry;
}

Status Publisher::MoveIntoPlace(const std::string& from, int64_t step, const std::string& model) {
  const std::string to = folder_ + "/" + StepName(step);
  Status moved = files_->Rename(from, to);
  if (!moved.ok() && moved.error().code == Code::kAlreadyExists) {
    if (IsGood(step, model)) {  // another writer was faster, with the same bits
      RM_TRY(files_->SyncFolder(folder_));
      return RemoveWithFiles(files_, from);
    }
    log::Warn("checkpoint: replacing {}, which is damaged or of another model", to);
    RM_TRY(Discard(files_, folder_, step, unique_));
    moved = files_->Rename(from, to);
  }
  RM_TRY(moved);
  RM_TRY(files_->SyncFolder(folder_));
  const auto back = ReadManifest(to);
  if (!back.ok()) return back.error().In("reading back the written checkpoint");
  RM_TRY(CheckSizes(to, *back));
  good_.insert(step);
  return Ok();
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

Status Publisher::RemoveOld(const std::string& model) {
  RM_ASSIGN(const std::vector<int64_t> steps, StepsIn(folder_));
  if (steps.size() <= static_cast<size_t>(keep_)) return Ok();
  int good = 0;
  size_t oldest_kept = steps.size();
  while (oldest_kept > 0 && good < keep_) good += IsGood(steps[--oldest_kept], model) ? 1 : 0;
  if (good < keep_) return Ok();  // keep damaged ones until there are enough valid ones
  for (size_t i = 0; i < oldest_kept; ++i) {
    const std::string path = folder_ + "/" + StepName(steps[i]);
    const auto manifest = ReadManifest(path);
    if (manifest.ok() && manifest->model != model) continue;  // of another job
    RM_TRY(Discard(files_, folder_, steps[i], unique_));
    good_.erase(steps[i]);
  }
  return Ok();
}

}  // namespace ringmaster::checkpoint
