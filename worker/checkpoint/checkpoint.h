// SPDX-License-Identifier: Apache-2.0

// Checkpoints: chunked, checksummed, world-size independent, published atomically.
//
//   DIR/step-000000000300/MANIFEST       written last: JSON with the chunk table, the run's fingerprint and
//                                        its own hash
//   DIR/step-000000000300/chunk-00000    raw little-endian bytes of one piece of one array
//   DIR/step-000000000300.tmp-<unique>   one being written; never read; swept when its writer is dead
//
// A folder without a MANIFEST that verifies does not exist as far as anybody is concerned.
// docs/reference/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"

namespace ringmaster::checkpoint {

struct Array {
  std::string name;  // "params", "adamw.m", "adamw.v", "exponents"
  std::string type;  // "f32" | "i32"
  std::span<const std::byte> bytes;
};

struct Snapshot {
  int64_t step = 0;
  std::string model;  // fingerprint of what the arrays mean; a checkpoint of another model is refused
  Json meta;          // cursor, seed, layout, model and data configuration: for loaders and exporters
  std::vector<Array> arrays;
};

struct Loaded {
  int64_t step = 0;
  std::string path;
  std::string model;
  Json meta;
  struct Part {
    std::string name;
    std::string type;
    std::vector<std::byte> bytes;
  };
  std::vector<Part> arrays;
  std::vector<std::string> skipped;  // why newer ones were passed over, for the log
  const Part* Find(const std::string& name) const;
};

// Writes in the background. Thread rule: one owner thread.
class Writer {
 public:
  // `unique` names this process (its member id); `keep` >= 1 newest good ones stay. Fails when the folder
  // cannot be made or written to.
  static Result<std::unique_ptr<Writer>> Create(const std::string& folder, int keep,
                                                const std::string& unique);
  virtual ~Writer() = default;  // waits for the write in progress

  // Copies the arrays (the call's only cost to training) and returns; waits first for an earlier write in
  // progress. A step that is already published is skipped.
  virtual Status Start(const Snapshot& snapshot) = 0;

  // Waits for a write in progress, but no longer than this; false: it still is.
  virtual bool Idle(Duration limit) = 0;

  // The newest step this writer knows to be published (by itself, or found there when it came to write it),
  // or -1. Does not block. An error of the last write, once: training may go on, the message says what to do.
  virtual Result<int64_t> Poll() = 0;

  // Blocks until nothing is in progress; the outcome of the last write.
  virtual Status Wait() = 0;
};

// The newest checkpoint that verifies completely (every chunk read and hashed). kNotFound when there is none;
// kCorrupt when there are some but all are damaged (starting over must be a decision, not an accident);
// kInvalid when the newest good one is of another model (message names both). `expected_model` empty: any.
Result<Loaded> LoadNewest(const std::string& folder, const std::string& expected_model);

// One given folder (".../step-...", or a folder of such: then the newest good one).
Result<Loaded> Load(const std::string& path);

// Steps whose MANIFEST verifies (chunks are not read), ascending.
std::vector<int64_t> List(const std::string& folder);

}  // namespace ringmaster::checkpoint
