// SPDX-License-Identifier: Apache-2.0

// Checkpoints: chunked, checksummed, independent of the world size, published atomically.
//
//   DIR/step-000000000300/MANIFEST       written last: JSON with the chunk table, the run's fingerprint and
//                                        a hash of itself
//   DIR/step-000000000300/chunk-00000    raw little-endian bytes of one piece of one array
//   DIR/step-000000000300.tmp-<unique>   being written; never read; removed when its writer has died
//
// A folder without a valid MANIFEST is not a checkpoint. See docs/reference/checkpoint-format.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"
#include "base/work_counter.h"
#include "worker/checkpoint/identity.h"

namespace ringmaster::checkpoint {

struct Array {
  std::string name;  // "params", "adamw.m", "adamw.v", "exponents"
  std::string type;  // of an element: "f32", "i32" (ElementBytes in manifest.h)
  std::span<const std::byte> bytes;
};

struct Snapshot {
  int64_t step = 0;
  std::string model;  // Identity::model: a checkpoint of another one is refused
  Json meta;  // identity, cursor, seed, layout, model and data configuration, for loaders and exporters
  std::vector<Array> arrays;
  // The hashes by which the members of the run compare this state, as text. An existing checkpoint of the
  // step with another text does not count as published. Empty: unknown.
  std::string state;
  // Computes `state` from the arrays of the copy that is written. Runs on the writer's thread. An unknown
  // `state` becomes the result; otherwise both must be equal. May be null.
  std::function<std::string(const std::vector<Array>&)> hash_state;
  // The attempt that owns the folder, as this run knows it (attempt.h); unset: not compared.
  std::optional<std::string> attempt;
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
    // The elements of an array of floats: checkpoints store them little-endian, and operator new aligns the
    // bytes for any scalar type. `bytes` has whole elements.
    std::span<const float> Floats() const;
  };
  std::vector<Part> arrays;
  std::vector<std::string> skipped;  // why newer checkpoints were skipped, for the log
  // A skipped one could not be read, for a reason that may pass: it may be whole.
  bool skipped_unread = false;
  // How the run differs from the one that wrote the checkpoint: accepted by Identity::from, and noted only.
  std::vector<std::string> changed;
  std::vector<std::string> noted;
  std::vector<std::string> AllChanges() const;  // both
  Json parent;        // for the identity of the checkpoints that the run writes; null: none
  std::string state;  // Snapshot::state
  const Part* Find(const std::string& name) const;
};

// Writer writes checkpoints in the background. Not thread-safe.
class Writer {
 public:
  // `unique` identifies this process (its member id). The newest `keep` valid checkpoints are kept. Errors:
  // kInvalid when keep < 1; the system's errors when the folder cannot be created or written.
  static Result<std::unique_ptr<Writer>> Create(const std::string& folder, int keep,
                                                const std::string& unique);
  virtual ~Writer() = default;  // waits for the write in progress

  // Waits for a write in progress, copies the arrays and returns; the copy is the only cost to training.
  // Skips a step that is already published.
  virtual Status Start(const Snapshot& snapshot) = 0;

  // Waits up to `limit` for a write in progress. Returns false when it is still in progress.
  virtual bool Idle(Duration limit) = 0;

  // Returns the newest step that this writer has published or found published; -1 for none. Does not block.
  // Returns an error of the last write once; training may continue, and the message has the remedy.
  virtual Result<int64_t> Poll() = 0;

  // Waits for a write in progress and returns the result of the last write.
  virtual Status Wait() = 0;
};

// Loads the newest checkpoint that verifies completely (every chunk is read and hashed) and that the run of
// this identity continues. Without any, loads what `identity.from` names. Reads that fail for a reason that
// may pass (a stale handle, an I/O error) are repeated for a while, and the folder is listed again.
// Errors: kNotFound when there is none; kCorrupt when all are damaged (starting over must be a decision, not
// an accident); kUnavailable when none could be read; kInvalid when the newest valid one is of another run or
// has other settings (the message names each difference); kCancelled soon after *cancel becomes true.
// `counter`: of the bytes read, of each checkpoint that is tried.
Result<Loaded> LoadNewest(const std::string& folder, const Identity& identity,
                          const std::atomic<bool>* cancel = nullptr, WorkCounter* counter = nullptr);
// As above, for a run of which only the model is known. An empty `expected_model` accepts any.
Result<Loaded> LoadNewest(const std::string& folder, const std::string& expected_model,
                          const std::atomic<bool>* cancel = nullptr, WorkCounter* counter = nullptr);

// Finds the checkpoint in the folder that LoadNewest would load, without reading its chunks.
struct Newest {
  int64_t step = -1;  // -1: none
  std::string text;   // for people: what is in the folder, and why newer checkpoints do not count
};
Newest FindNewest(const std::string& folder, const Identity& identity);
Newest FindNewest(const std::string& folder, const std::string& expected_model);

// Returns a sentence for users if `folder` is the default one of the job `run` (".../NAMESPACE/NAME"), and
// the folder above, which was the default before, has checkpoints; otherwise nothing.
std::string NoteOfOldPath(const std::string& folder, const std::string& run);

// Returns the parent of the run, as its newest checkpoint in the folder names it; without one,
// `identity.from`. Null: none.
Json FindParent(const std::string& folder, const Identity& identity);

// Loads a given checkpoint (".../step-..."), or the newest valid one of a folder of checkpoints.
Result<Loaded> Load(const std::string& path, WorkCounter* counter = nullptr);

// Returns the steps with a valid MANIFEST, ascending. Does not read chunks.
std::vector<int64_t> List(const std::string& folder);

// Returns the bytes of the checkpoints in the folder, whole or damaged, which removing them would free.
int64_t BytesIn(const std::string& folder);

// Removes the checkpoints that writers have left in the folder, whole or damaged, for a run that starts over.
// Leaves everything else: links, folders of other names, and files that no writer creates. With a `run`,
// leaves the checkpoints of other runs, too. Errors: the first file that cannot be removed, after all others
// are; and kConflict if a checkpoint of another run remains.
Status RemoveAll(const std::string& folder, const std::string& run);

}  // namespace ringmaster::checkpoint
