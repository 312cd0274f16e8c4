// SPDX-License-Identifier: Apache-2.0

#include "worker/checkpoint/catalog.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/temporary.h"
#include "worker/checkpoint/verify.h"

namespace ringmaster::checkpoint {
namespace {

using Kind = CatalogEntry::Kind;

// Locks, the owner, and what workers keep next to checkpoints (the hashes of the data).
bool IsOfWriters(const std::string& name) {
  return name == kFolderLockName || name == kRunLockName || name == kAttemptName || name == kDataHashesName ||
         IsSillyName(name);
}

struct Found {
  bool folder = false;
  bool link = false;  // to a folder, if `folder`
};

Found At(const std::string& path) {
  struct stat target {};
  struct stat entry {};
  return {::stat(path.c_str(), &target) == 0 && S_ISDIR(target.st_mode),
          ::lstat(path.c_str(), &entry) == 0 && S_ISLNK(entry.st_mode)};
}

void Measure(const std::string& path, CatalogEntry* entry) {
  struct stat info {};
  for (const std::string& name : NamesIn(path)) {
    if (IsOurFile(name) && ::stat((path + "/" + name).c_str(), &info) == 0) entry->bytes += info.st_size;
  }
  const std::string manifest = path + "/" + std::string(kManifestName);
  if (::stat(manifest.c_str(), &info) == 0 || ::stat(path.c_str(), &info) == 0)
    entry->written_s = info.st_mtime;
}

void NoteOtherFiles(const std::string& path, CatalogEntry* entry) {
  std::set<std::string> known = {std::string(kManifestName), std::string(kLockName)};
  for (const ArrayEntry& array : entry->manifest.arrays)
    for (const Chunk& chunk : array.chunks) known.insert(chunk.file);
  for (std::string& name : NamesIn(path))
    if (!known.contains(name) && !IsSillyName(name)) entry->other_files.push_back(std::move(name));
}

CatalogEntry Look(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  CatalogEntry entry;
  entry.name = name;
  if (IsTemporaryName(name) && IsOfWriter(path)) {
    entry.step = *ParseStepName(name.substr(0, name.find('.')));
    entry.kind = HasLiveWriter(path) ? Kind::kWritten : Kind::kLeftOver;
    Measure(path, &entry);
    return entry;
  }
  const auto step = ParseStepName(name);
  const Found found = At(path);
  if (!step.has_value() || !(found.link ? found.folder : IsDiscardable(folder, *step))) return entry;
  entry.step = *step;
  entry.link = found.link;
  Measure(path, &entry);
  auto manifest = ReadManifest(path);
  const Status sizes = manifest.ok() ? CheckSizes(path, *manifest) : Status(manifest.error());
  entry.kind = sizes.ok()                             ? Kind::kWhole
               : sizes.error().code == Code::kCorrupt ? Kind::kDamaged
                                                      : Kind::kUnreadable;
  if (!sizes.ok()) entry.problem = sizes.error().message;
  if (!manifest.ok()) return entry;
  entry.manifest = std::move(*manifest);
  NoteOtherFiles(path, &entry);
  return entry;
}

int Order(Kind kind) {
  return kind == Kind::kForeign ? 2 : kind == Kind::kWritten || kind == Kind::kLeftOver ? 1 : 0;
}

}  // namespace

Result<std::vector<CatalogEntry>> ListFolder(const std::string& folder) {
  if (const auto steps = StepsIn(folder); !steps.ok()) return steps.error();
  std::vector<CatalogEntry> entries;
  for (const std::string& name : NamesIn(folder))
    if (!IsOfWriters(name)) entries.push_back(Look(folder, name));
  // Names are sorted, and those of steps have leading zeros.
  std::stable_sort(entries.begin(), entries.end(), [](const CatalogEntry& one, const CatalogEntry& other) {
    return Order(one.kind) < Order(other.kind);
  });
  return entries;
}

Result<CatalogEntry> FindStep(const std::string& folder, int64_t step) {
  RM_ASSIGN(const auto steps, StepsIn(folder));
  CatalogEntry entry = Look(folder, StepName(step));
  if (entry.kind != Kind::kForeign) return entry;
  std::string there;
  for (const int64_t other : steps)
    if (IsDiscardable(folder, other)) there += (there.empty() ? "" : ", ") + std::to_string(other);
  return Error{Code::kNotFound, fmt::format("{}: has no checkpoint of step {}; {}", folder, step,
                                            there.empty() ? "it has none" : "it has those of " + there)};
}

std::vector<Error> FindDamage(const std::string& checkpoint, WorkCounter* counter) {
  const auto manifest = ReadManifest(checkpoint);
  if (!manifest.ok()) return {manifest.error()};
  int64_t total = 0;
  for (const ArrayEntry& array : manifest->arrays) total += array.bytes;
  if (counter != nullptr) counter->Begin(total);
  std::vector<Error> damage;
  std::vector<std::byte> buffer;
  for (const ArrayEntry& array : manifest->arrays) {
    for (const Chunk& chunk : array.chunks) {
      // First the size, before memory is allocated by it.
      Status read = CheckSize(checkpoint, chunk);
      if (read.ok()) {
        buffer.resize(static_cast<size_t>(chunk.bytes));
        read = ReadChunk(checkpoint, chunk, buffer);
      }
      if (!read.ok()) damage.push_back(read.error());
      if (counter != nullptr) counter->Add(chunk.bytes);
    }
  }
  return damage;
}

Kind KindOf(const std::vector<Error>& damage) {
  if (damage.empty()) return Kind::kWhole;
  return std::any_of(damage.begin(), damage.end(),
                     [](const Error& error) { return error.code == Code::kCorrupt; })
             ? Kind::kDamaged
             : Kind::kUnreadable;
}

}  // namespace ringmaster::checkpoint
