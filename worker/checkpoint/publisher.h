// SPDX-License-Identifier: Apache-2.0

// Publisher writes a checkpoint, publishes it, and removes old ones, in the caller's thread. Not thread-safe;
// several processes may publish to the same folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_counter.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {

inline constexpr size_t kChunkBytes = size_t{16} << 20;

// A snapshot that owns its bytes.
struct Copy {
  struct Array {
    std::string name;
    std::string type;
    std::vector<std::byte> bytes;
  };
  int64_t step = 0;
  std::string model;
  Json meta;
  std::vector<Array> arrays;
  // As those of a Snapshot.
  std::string state;
  std::optional<std::string> attempt;
};

class Publisher {
 public:
  Publisher(FileSystem* files, std::string folder, int keep, std::string unique,
            size_t chunk_bytes = kChunkBytes);

  // When this returns Ok, a complete checkpoint of copy.step is on the disk and survives a loss of power:
  // either this copy, or an existing checkpoint of the same state that verified. Errors: kGone when the
  // folder belongs to a newer attempt of the run, kConflict when it has this step of another run; then
  // nothing has changed.
  Status Publish(const Copy& copy);

  // As Publish, of the state in the folder `source`, another checkpoint, described by `manifest`. Reads,
  // verifies and writes one chunk at a time. Errors: also kCorrupt, with the damaged chunk. `counter`: of the
  // bytes.
  Status PublishCopyOf(const std::string& source, const Manifest& manifest, WorkCounter* counter = nullptr);

 private:
  // Writes the arrays into a folder and describes them.
  using WriteArrays = std::function<Result<std::vector<ArrayEntry>>(const std::string& folder)>;
  Status Publish(const Copy& copy, const WriteArrays& write_arrays);
  Status Write(const Copy& copy, const std::string& folder, const WriteArrays& write_arrays);
  Status CopyChunk(const std::string& source, const Chunk& chunk, const std::string& folder);
  Result<ArrayEntry> WriteArray(const Copy::Array& array, const std::string& folder, int64_t* next_chunk);
  Status WriteFile(const std::string& path, std::span<const std::byte> bytes);
  // REQUIRES: the lock of the folder is held.
  Status CheckOwner(const Copy& copy) const;
  Status MoveIntoPlace(Temporary* from, const Copy& copy);
  Result<bool> IsGood(const Copy& copy);
  bool IsGood(int64_t step, const std::string& model);
  void RemoveOld(const std::string& model);

  FileSystem* files_;
  std::string folder_;
  int keep_;
  std::string unique_;
  size_t chunk_bytes_;
  std::set<int64_t> good_;  // known to be complete: written here, or read and verified
};

}  // namespace ringmaster::checkpoint
