// SPDX-License-Identifier: Apache-2.0

// Lists what is in a folder of checkpoints, for people. Reads only. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_counter.h"
#include "worker/checkpoint/manifest.h"

namespace ringmaster::checkpoint {

struct CatalogEntry {
  enum class Kind {
    kWhole,       // the MANIFEST is valid, and all files have their sizes; their bytes are not read
    kDamaged,     // `problem` has the reason
    kUnreadable,  // `problem` has the reason; the checkpoint may be whole
    kWritten,     // a temporary folder, whose writer lives
    kLeftOver,    // a temporary folder, whose writer has died; the next writer or removal deletes it
    kForeign,     // no writer created it; never changed
  };
  std::string name;  // in the folder
  Kind kind = Kind::kForeign;
  int64_t step = -1;      // -1: foreign
  bool link = false;      // to a checkpoint elsewhere, which is loaded and never removed
  int64_t bytes = 0;      // of the files of writers
  int64_t written_s = 0;  // seconds since 1970, when the MANIFEST, or without one the folder, was changed
  std::string problem;
  // Names in the folder of the checkpoint that are not in its MANIFEST. A removal keeps them.
  std::vector<std::string> other_files;
  bool is_checkpoint() const {
    return kind == Kind::kWhole || kind == Kind::kDamaged || kind == Kind::kUnreadable;
  }
  Manifest manifest;  // of kWhole, and of kDamaged if only other files are damaged
};

// Returns the checkpoints in ascending order, then temporary folders, then what is foreign. Locks and other
// small files that writers keep in the folder are left out. Errors: kNotFound; those of reading the folder.
Result<std::vector<CatalogEntry>> ListFolder(const std::string& folder);

// Returns the entry of one step. Errors: kNotFound, with the steps that the folder has.
Result<CatalogEntry> FindStep(const std::string& folder, int64_t step);

// Reads and hashes every file of a checkpoint, and returns an error for each that is damaged or cannot be
// read; empty: the checkpoint is whole. `counter`: of the bytes.
std::vector<Error> FindDamage(const std::string& checkpoint, WorkCounter* counter = nullptr);

// What FindDamage has found: kWhole, kDamaged, or kUnreadable if no file is known to be damaged, but one
// cannot be read now, or by this build.
CatalogEntry::Kind KindOf(const std::vector<Error>& damage);

}  // namespace ringmaster::checkpoint
